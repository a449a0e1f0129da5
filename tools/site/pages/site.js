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
