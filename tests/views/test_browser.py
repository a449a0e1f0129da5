"""The page in a real browser: it loads nothing, fits a phone, and prints its mark on each page.

If node, puppeteer-core and axe-core are installed too, axe-core checks accessibility. The
environment variable ``NODE_PATH`` states where they are.
"""

import dataclasses
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from pages import GOLDEN, page_of, random_release, read

import beam_dp as dp
from beam_dp.views.cells import Truth

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DOMAIN = dp.Domain(
    (
        dp.IntegerAttribute("age", 0, 99),
        dp.CategoricalAttribute("a < b", ("x" * 300, "m")),
        dp.IntegerAttribute("visits", 0, 9),
    )
)
CHECK = """
const puppeteer = require('puppeteer-core');
const fs = require('fs');
(async () => {
  const [, , file, browser] = process.argv;
  const started = await puppeteer.launch({executablePath: browser, args: ['--no-sandbox']});
  const found = [];
  for (const scheme of ['light', 'dark']) for (const width of [1280, 360]) {
    const page = await started.newPage();
    await page.setViewport({width, height: 900});
    await page.emulateMediaFeatures([{name: 'prefers-color-scheme', value: scheme}]);
    const loaded = [];
    page.on('request', request => loaded.push(request.url()));
    await page.goto('file://' + file);
    const root = 'document.documentElement';
    const beyond = await page.evaluate(`${root}.scrollWidth - ${root}.clientWidth`);
    await page.evaluate(() => document.querySelectorAll('details').forEach(d => d.open = true));
    await page.evaluate(fs.readFileSync(require.resolve('axe-core'), 'utf8'));
    const faults = await page.evaluate(
      async () => (await axe.run(document)).violations.map(each => each.id + ' ' + each.impact));
    found.push({scheme, width, beyond, loaded: loaded.length, faults});
    await page.close();
  }
  console.log(JSON.stringify(found));
  await started.close();
})();
"""

pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(BROWSER is None, reason="no browser: Debian's package chromium has one"),
]


def pages() -> dict[str, str]:
    release = dataclasses.replace(
        random_release(DOMAIN, 500), workload=dp.marginals(DOMAIN, ways=3)
    )
    truth = Truth(DOMAIN, [np.zeros(500, np.int64)] * 3, 0)
    windows, codes = read(GOLDEN / "horizon"), [np.zeros(5, np.int64)] * 2
    kinds = ("horizon", "intervals", "hybrid_sketch")
    return {
        "public": page_of(release),
        "private": page_of(release, truth=truth),
        "windows": page_of(windows, truth=Truth(windows.domain, codes, 0, 0, codes[0])),
        **{kind: page_of(read(GOLDEN / kind)) for kind in kinds},
    }


def test_pages_are_accessible_and_load_nothing(tmp_path):
    node = shutil.which("node")
    found = node and subprocess.run(
        [node, "-e", "require.resolve('axe-core'); require.resolve('puppeteer-core')"],
        capture_output=True,
        check=False,
    )
    if not found or found.returncode:
        pytest.skip("node finds no axe-core and puppeteer-core: NODE_PATH says where they are")
    script = tmp_path / "check.js"
    script.write_text(CHECK)
    for name, page in pages().items():
        path = tmp_path / f"{name}.html"
        path.write_text(page, "utf-8")
        ran = subprocess.run(
            [str(node), str(script), str(path), str(BROWSER)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ},
        )
        for seen in json.loads(ran.stdout):
            assert (seen["beyond"], seen["loaded"], seen["faults"]) == (0, 1, []), (name, seen)


def test_every_printed_page_with_the_truth_is_marked_private(tmp_path):
    reader = shutil.which("pdftotext")
    if reader is None:
        pytest.skip("no pdftotext: Debian's package poppler-utils has one")
    path, printed = tmp_path / "private.html", tmp_path / "private.pdf"
    path.write_text(pages()["private"], "utf-8")
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu"]
    subprocess.run(
        [*command, f"--print-to-pdf={printed}", f"file://{path}"], capture_output=True, check=True
    )
    text = subprocess.run([reader, printed, "-"], capture_output=True, text=True, check=True).stdout
    each = text.split("\f")[:-1]
    assert len(each) > 2
    assert all(re.search("PRIVATE", page) for page in each)
    # The part for a privacy officer is folded on a screen only.
    assert "How to cite" in text and "What beam-dp describe prints" in text
    assert "fails with" not in text
