// Wide tables can be scrolled with the keyboard: the theme wraps them when the page is there, and this lets them be reached.
const reach = () => {
  for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    wrap.tabIndex = 0;
    wrap.setAttribute("role", "group");
    wrap.setAttribute("aria-label", "Table");
  }
};
reach();
new MutationObserver(reach).observe(document.body, {childList: true, subtree: true});
