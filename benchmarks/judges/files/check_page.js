// Prints how many rules of axe-core a page breaks, among those that need no layout.
"use strict";
const fs = require("fs");
const { JSDOM } = require("jsdom");

(async () => {
  const found = {};
  for (const path of process.argv.slice(2)) {
    const page = new JSDOM(fs.readFileSync(path, "utf8"), { runScripts: "outside-only" });
    page.window.eval(fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
    const rules = { "color-contrast": { enabled: false } };
    const result = await page.window.axe.run(page.window.document, { rules });
    found[path] = {
      passes: result.passes.length,
      violations: result.violations.map((each) => `${each.id}: ${each.nodes.length}`),
    };
  }
  console.log(JSON.stringify(found));
})();
