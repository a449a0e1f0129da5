// Code and tables wider than the screen can be scrolled by keyboard; regions have different names.
addEventListener("load", () => {
  document.querySelectorAll(".md-code__nav").forEach((each, place) => {
    each.setAttribute("aria-label", `Code ${place + 1}`);
  });
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
