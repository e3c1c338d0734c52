// Tables that scroll can be reached by keyboard, and say what they are.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".table-wrapper").forEach((box, k) => {
    if (box.scrollHeight <= box.clientHeight && box.scrollWidth <= box.clientWidth) return;
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `Table ${k + 1}, scrolls`);
  });
});
