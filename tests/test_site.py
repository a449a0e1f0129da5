"""The site that `make docs` builds: complete, loads nothing from elsewhere, can be searched.

It is built anew by what `make docs` installed into ``.venv-site``; wrong links and anchors are
errors of a strict build.
"""

import html
import html.parser
import json
import pathlib
import re
import shutil
import subprocess

import pytest
from documents.outputs import missing
from documents.tutorials import FIGURES, KEPT
from markdown_it import MarkdownIt

ROOT = pathlib.Path(__file__).parent.parent
PYTHON = ROOT / ".venv-site" / "bin" / "python"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "benchmarks/results/*.md")
    for path in ROOT.glob(pattern)
)
# Opens the dialog, types into it, and makes what it shows the title of the page.
TYPED = """
const later = (work) => setTimeout(work, 2000);
later(() => {
  document.querySelector(".md-search__button").click();
  later(() => {
    const roots = [...document.querySelectorAll("*")].map((each) => each.shadowRoot ?? each);
    const root = roots.find((each) => each instanceof ShadowRoot && each.querySelector("input"));
    const input = root.querySelector("input");
    input.value = "laplace";
    input.dispatchEvent(new InputEvent("input", { bubbles: true }));
    later(() => (document.title = root.textContent));
  });
});
"""
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
ELSEWHERE = re.compile(r"(?:https?:)?//")

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-site: `make docs` makes it"),
]


class Elements(html.parser.HTMLParser):
    """Counts a page's elements, and lists what a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag in LOADED:
            self.loaded.append(dict(attrs).get(LOADED[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> pathlib.Path:
    for command in (["python", "tools/site/write_pages.py"], ["zensical", "build", "--strict"]):
        command[0] = str(PYTHON.with_name(command[0]))
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return shutil.copytree(ROOT / "build" / "site", tmp_path_factory.mktemp("site") / "site")


def page(site: pathlib.Path, document: str) -> str:
    return (site / document.replace("README", "index")).with_suffix(".html").read_text("utf-8")


def test_site_loads_nothing_from_other_hosts(site):
    found = [
        (path.name, loaded)
        for path in site.rglob("*.html")
        for loaded in Elements(path.read_text("utf-8")).loaded
        if ELSEWHERE.match(loaded)
    ]
    found += [
        (path.name, address)
        for path in site.rglob("*.css")
        for address in re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")]+)", path.read_text("utf-8"))
        if ELSEWHERE.match(address)
    ]
    assert found == []


def test_search_finds_every_document(site):
    entries = json.loads((site / "search.json").read_text("utf-8"))["items"]
    found = {entry["location"].partition("#")[0] for entry in entries}
    documents = {name.replace("README", "index").replace(".md", ".html") for name in DOCUMENTS}
    assert sorted(documents - found) == []


def test_navigation_has_every_page(site):
    listed = re.findall(r"^ +- (?:.+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M)
    pages = ROOT / "build" / "pages"
    assert sorted(listed) == sorted(str(each.relative_to(pages)) for each in pages.rglob("*.md"))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_pages_keep_lists_and_tables_of_their_markdown(site, document):
    """The site's Markdown wants an empty line before a list, and four spaces inside one."""
    article = page(site, document).partition("<article")[2].partition("</article>")[0]
    here = Elements(article).counts
    source = (ROOT / document).read_text("utf-8")
    there = Elements(MarkdownIt("commonmark").enable("table").render(source)).counts
    kinds = ("h1", "h2", "h3", "ul", "ol", "li", "table", "tr", "td", "img", "strong", "code")
    assert {kind: here.get(kind) for kind in kinds} == {kind: there.get(kind) for kind in kinds}


def test_every_public_name_has_an_entry(site):
    import beam_dp

    paths = [*(site / "reference").glob("*.html"), *(site / "docs").glob("mechanism_*.html")]
    pages = "".join(path.read_text("utf-8") for path in paths)
    assert [name for name in beam_dp.__all__ if f'id="beam_dp.{name}"' not in pages] == []


def test_every_mechanism_has_a_page(site):
    from beam_dp.flags.command_line import PROGRAMS, flags_of_program

    choices = {
        choice
        for program in PROGRAMS
        for flag in flags_of_program(program)
        if flag.name == "mechanism"
        for choice in flag.choices
    }
    pages = {path.stem.removeprefix("mechanism_") for path in (site / "docs").glob("*.html")}
    assert choices - pages == {"auto"}
    for name in sorted(choices & pages):
        text = page(site, f"docs/mechanism_{name}.md")
        assert "Choose it when:" in text and "<strong>Privacy:" in text


@pytest.mark.parametrize("name", FIGURES)
def test_tutorial_shows_what_its_cells_printed_when_the_site_was_built(site, name):
    text = page(site, f"examples/notebooks/{name}.md")
    outputs = re.findall(r'<div class="output .*?</div>', text, re.DOTALL)
    shown = (html.unescape(re.sub(r"<[^>]+>", "", output)) for output in outputs)
    assert missing(FIGURES[name], "\n".join(shown)) == ""


@pytest.mark.parametrize(("name", "pictures"), [("analyst", 1), ("engineer", 0), ("officer", 1)])
def test_tutorial_shows_its_pictures_with_their_titles(site, name, pictures):
    text = page(site, f"examples/notebooks/{name}.md").partition("<article")[2]
    found = re.findall(rf'<img class="plot" alt="[^"]+" src="({name}-[^"]+\.svg)"', text)
    assert len(found) == pictures
    for file in found:
        assert "</svg>" in (site / "examples" / "notebooks" / file).read_text("utf-8")


@pytest.mark.parametrize("name", KEPT)
def test_tutorial_offers_the_files_that_its_reader_keeps(site, name):
    text = page(site, f"examples/notebooks/{name}.md")
    assert (
        sorted(re.findall(r'<a href="(\w[^"/]*)"[^>]*>(?:Open|Download) \1<', text)) == KEPT[name]
    )
    for file in KEPT[name]:
        assert (site / "examples" / "notebooks" / file).stat().st_size > 1000


@pytest.mark.skipif(BROWSER is None, reason="no browser: Debian's package chromium has one")
def test_site_is_searchable_offline(site):
    """Opened as a file. The dialog is a part of the page that is shown to nobody else."""
    home = (site / "index.html").read_text("utf-8")
    (site / "typed.html").write_text(f"{home}<script>{TYPED}</script>", encoding="utf-8")
    shown = subprocess.run(
        [
            str(BROWSER),
            *("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom"),
            f"file://{site}/typed.html",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.search(r"<title>[^<]*\d+ results", shown)
