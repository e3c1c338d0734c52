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
  const become = (node, tag, className) => {
    const made = Object.assign(document.createElement(tag), { className });
    made.append(...node.childNodes);
    node.replaceWith(made);
    return made;
  };
  // Parameters of a long signature are marked up as a list of definitions without terms.
  all("dt > dl, .sig dl").forEach((list) => {
    Array.from(list.children).forEach((part) => become(part, "div", "sig-part"));
    become(list, "div", "sig-parts");
  });
  all("th.head").filter((head) => !head.textContent.trim()).forEach((head) => become(head, "td", "head"));
  const page = document.querySelector("#furo-main-content");
  if (page && !document.querySelector("h1")) {
    page.prepend(Object.assign(document.createElement("h1"), { textContent: document.title.split(" - ")[0] }));
  }
  for (const [place, name] of [[".sidebar-drawer", "Pages"], [".toc-drawer", "On this page"]]) {
    all(place).forEach((aside) => aside.setAttribute("aria-label", name));
  }
});
