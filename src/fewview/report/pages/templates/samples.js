"use strict";
// The table of samples: opening a card, sorting, filtering. A page that puts a table in later calls it again.
const fewviewSamples = (root) => {
  const table = root.querySelector("table.samples");
  if (!table) return;
  const all = (selector, inside = root) => Array.from(inside.querySelectorAll(selector));
  const open = (button, on) => {
    button.setAttribute("aria-expanded", on);
    button.closest("tbody").rows[1].hidden = !on;
  };
  table.addEventListener("click", (event) => {
    const button = event.target.closest("button.open");
    if (button) open(button, button.getAttribute("aria-expanded") !== "true");
  });
  fewviewSort(table);
  const form = root.querySelector("form.filters");
  const bodies = Array.from(table.tBodies);
  const texts = new Map(bodies.map((body) => [body, body.rows[0].textContent.toLowerCase()]));
  const update = () => {
    const words = form.querySelector("input[type=search]").value.toLowerCase().split(/\s+/).filter(Boolean);
    const label = form.querySelector("[data-on=label]").value;
    const lacks = form.querySelector("[data-on=lacks]").value;
    const ticks = all("input[type=checkbox]", form).filter((tick) => tick.checked).map((tick) => tick.dataset.on);
    let count = 0;
    for (const body of bodies) {
      const shown = words.every((word) => texts.get(body).includes(word))
        && (!label || body.dataset.label === label)
        && (!lacks || body.dataset.lacks.split(", ").includes(lacks))
        && ticks.every((tick) => tick in body.dataset);
      body.hidden = !shown;
      count += shown;
    }
    form.querySelector(".count").textContent = count === bodies.length
      ? `${count} samples` : `${count} of ${bodies.length} samples`;
  };
  for (const event of ["input", "change"]) form.addEventListener(event, update);
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
};
fewviewSamples(document);
