"use strict";
(() => {
  const all = (selector, inside = document) => Array.from(inside.querySelectorAll(selector));

  // Sorting: a column's name is a button; numbers by value, text by the rules of the language.
  const key = (row, column, number) => {
    const cell = row.cells[column];
    if (!number) return cell.textContent;
    const value = parseFloat(cell.dataset.v ?? cell.textContent);
    return Number.isNaN(value) ? null : value;
  };
  for (const table of all("table")) {
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const number = head.classList.contains("n");
        const before = head.getAttribute("aria-sort");
        // The first press shows the largest numbers first, and text from a to z.
        const order = before === "none" ? (number ? "descending" : "ascending")
          : before === "ascending" ? "descending" : "ascending";
        heads.forEach((other) => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const body = table.tBodies[0];
        const rows = Array.from(body.rows).map((row) => [key(row, column, number), row]);
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          return sign * (number ? a - b : a.localeCompare(b));
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  // Filtering: words anywhere in the row, and choices that match a column.
  for (const form of all("form.filters")) {
    const rows = Array.from(document.getElementById(form.dataset.table).tBodies[0].rows);
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const update = () => {
      const words = form.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
      const choices = all("select", form).filter((select) => select.value);
      let count = 0;
      for (const row of rows) {
        const shown = words.every((word) => texts.get(row).includes(word))
          && choices.every((select) => row.cells[select.dataset.column].textContent === select.value);
        row.hidden = !shown;
        count += shown;
      }
      form.querySelector(".count").textContent = count === rows.length
        ? `${count} rows` : `${count} of ${rows.length} rows`;
    };
    for (const event of ["input", "change"]) form.addEventListener(event, update);
    form.addEventListener("submit", (event) => event.preventDefault());
    update(); // a browser may remember what was typed
  }

  // Tables wider than their box say so.
  const measure = () => {
    for (const box of all(".scroll")) box.classList.toggle("more", box.scrollWidth > box.clientWidth + 1);
  };
  window.addEventListener("resize", measure);
  measure();

  // Methods: one press shows or hides a method in all figures.
  for (const button of all(".legend button")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      const look = button.dataset.m;
      for (const other of all(`.legend button[data-m="${look}"]`)) other.setAttribute("aria-pressed", shown);
      for (const series of all(`g.series[data-m="${look}"]`)) {
        series.classList.toggle("on", shown);
        if (shown) series.parentNode.append(series);
      }
    });
    const light = (on) => all(`g.series[data-m="${button.dataset.m}"]`).forEach((series) => series.classList.toggle("hi", on));
    for (const event of ["mouseenter", "focus"]) button.addEventListener(event, () => light(true));
    for (const event of ["mouseleave", "blur"]) button.addEventListener(event, () => light(false));
  }
})();
