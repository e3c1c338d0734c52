"use strict";
// Sorting: a column's name is a button; numbers by value, text by the rules of the language.
// What is moved is a row, or in a table of samples the body that holds a row and its card.
const fewviewSort = (table, told = () => {}) => {
  const heads = Array.from(table.tHead?.rows[0].cells ?? []);
  const key = (unit, column, number) => {
    const cell = (unit.rows?.[0] ?? unit).cells[column];
    if (!number) return cell.textContent;
    const value = parseFloat(cell.dataset.v ?? cell.textContent);
    return Number.isNaN(value) ? null : value;
  };
  heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
    const number = head.classList.contains("n");
    const before = head.getAttribute("aria-sort");
    // The first press shows the largest numbers first, and text from a to z.
    const order = before === "none" ? (number ? "descending" : "ascending")
      : before === "ascending" ? "descending" : "ascending";
    heads.forEach((other) => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const units = Array.from(table.matches(".samples") ? table.tBodies : table.tBodies[0].rows);
    const place = units[0]?.parentNode;
    const keyed = units.map((unit) => [key(unit, column, number), unit]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (number ? a - b : a.localeCompare(b, undefined, { numeric: true }));
    });
    place?.append(...keyed.map(([, unit]) => unit));
    told(column, order);
  }));
};
