// Browsers break lines after the dashes of a flag.
for (const code of document.querySelectorAll(".md-typeset :not(pre) > code"))
  code.innerHTML = code.innerHTML.replace(/(?<![\w-])--\w+/g, '<span class="flag">$&</span>');

// Cells of prose get the names of their columns, for screens too narrow for a table.
for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
  const cells = [...table.querySelectorAll("td")];
  if (!cells.some((cell) => cell.textContent.trim().length > 60)) continue;
  const heads = table.querySelectorAll("th");
  table.dataset.prose = "";
  for (const cell of cells) cell.dataset.label = heads[cell.cellIndex].textContent.trim();
}

// Code and tables wider than the screen can be scrolled by keyboard; regions have different names.
addEventListener("load", () => {
  const uses = {};
  for (const each of document.querySelectorAll("nav.md-code__nav, nav.md-nav[aria-label]")) {
    const name = each.ariaLabel?.trim() ?? "Code";
    const place = (uses[name.toLowerCase()] = (uses[name.toLowerCase()] ?? 0) + 1);
    each.ariaLabel = place === 1 ? name : `${name} ${place}`;
  }
  const wide = new ResizeObserver((changed) => {
    for (const { target } of changed) {
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  document
    .querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap")
    .forEach((each) => wide.observe(each));
});
