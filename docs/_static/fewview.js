// What the theme leaves to people with eyes and a mouse: what scrolls can be reached by keyboard,
// parts of the page have names, captions of the menu a level.
document.addEventListener("DOMContentLoaded", () => {
  const all = (selector) => Array.from(document.querySelectorAll(selector));
  const scrolls = (box) => box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1;
  const reach = () => all(".table-wrapper, pre").forEach((box, k) => {
    if (!scrolls(box)) return;
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `${box.tagName === "PRE" ? "Code" : "Table"} ${k + 1}, scrolls`);
  });
  window.addEventListener("resize", reach);
  reach();
  all('.caption[role="heading"]').forEach((caption) => caption.setAttribute("aria-level", "2"));
  for (const [place, name] of [[".sidebar-drawer", "Pages"], [".toc-drawer", "On this page"]]) {
    all(place).forEach((aside) => aside.setAttribute("aria-label", name));
  }
});
