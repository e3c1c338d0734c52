"use strict";
(() => {
  const all = (selector, inside = document) => Array.from(inside.querySelectorAll(selector));
  const make = (tag, options = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), options);
    node.append(...children);
    return node;
  };

  for (const table of all("table")) {
    fewviewSort(table, (column, order) => {
      state.sort = `${table.id}.${column}.${order}`;
      remember();
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

  // The state of the page is in its address: where, which methods are hidden, which one is chosen,
  // under which conditions, sorted how.
  const state = { at: "", off: new Set(), pick: "", when: new Set(), sort: "" };
  const boxes = all("#leaders input[data-m]");
  const names = new Map(boxes.map((box) => [box.dataset.m, box.value]));
  const keys = new Map(boxes.map((box) => [box.value, box.dataset.m]));
  const usual = new Set(boxes.filter((box) => !box.defaultChecked).map((box) => box.dataset.m));
  const listed = (items) => [...items].map(encodeURIComponent).join(",");
  const remember = () => {
    const parts = [state.at];
    const hidden = [...state.off];
    if (hidden.length !== usual.size || hidden.some((m) => !usual.has(m))) {
      parts.push(`off=${listed(hidden.map((m) => names.get(m)))}`);
    }
    if (state.pick && state.pick !== boxes[0]?.dataset.m) parts.push(`pick=${listed([names.get(state.pick)])}`);
    if (state.when.size) parts.push(`when=${listed(state.when)}`);
    if (state.sort) parts.push(`sort=${state.sort}`);
    const text = parts.join("&");
    history.replaceState(null, "", text ? `#${text}` : location.pathname);
  };
  const show = () => {
    for (const [m] of names) {
      const on = !state.off.has(m);
      for (const box of boxes) if (box.dataset.m === m) box.checked = on;
      for (const series of all(`g.series[data-m="${m}"]`)) {
        series.classList.toggle("on", on);
        series.classList.toggle("pick", on && state.pick === m);
        if (on) series.parentNode.append(series);
      }
      for (const node of all(`figure[data-m="${m}"], tr[data-m="${m}"], .keys li[data-m="${m}"]`)) {
        node.classList.toggle("off", !on);
      }
    }
    for (const series of all("g.series.pick")) series.parentNode.append(series); // on top
    for (const box of all("input[data-when]")) box.checked = state.when.has(box.dataset.when);
    for (const card of all(".card")) {
      const wanted = all("input[data-when]", card).map((box) => box.dataset.when).filter((w) => state.when.has(w)).join(" ");
      for (const answer of all(".answer", card)) answer.hidden = answer.dataset.when !== wanted;
    }
  };
  const open = (id) => {
    const target = id && document.getElementById(id);
    if (!target) return;
    const query = target.closest("details");
    if (query) query.open = true;
    target.scrollIntoView();
  };
  const recall = () => {
    const [at, ...rest] = location.hash.slice(1).split("&");
    const given = new Map(rest.map((part) => part.split("=")));
    const read = (name) => (given.get(name) ?? "").split(",").filter(Boolean).map(decodeURIComponent);
    if (rest.length || !recalled) {
      state.off = given.has("off") ? new Set(read("off").map((n) => keys.get(n)).filter(Boolean)) : new Set(usual);
      state.pick = keys.get(read("pick")[0]) ?? boxes[0]?.dataset.m ?? "";
      state.when = new Set(read("when"));
      const [table, column, order] = (given.get("sort") ?? "").split(".");
      const head = document.getElementById(table)?.tHead?.rows[0].cells[column];
      for (let k = 0; head && k < 2 && head.getAttribute("aria-sort") !== order; k += 1) head.querySelector("button")?.click();
    }
    state.at = at;
    show();
    open(at);
    if (recalled || rest.length) remember();
    recalled = true;
  };
  let recalled = false;
  const choose = (m) => {
    if (state.off.has(m) || state.pick === m) return;
    state.pick = m;
    show();
    remember();
  };
  for (const box of boxes) {
    box.addEventListener("change", () => {
      state.off[box.checked ? "delete" : "add"](box.dataset.m);
      if (box.checked) state.pick = box.dataset.m;
      show();
      remember();
    });
    const row = box.closest("tr");
    row.addEventListener("pointerenter", () => choose(box.dataset.m));
    row.addEventListener("focusin", () => choose(box.dataset.m));
  }
  for (const table of all("#leaders table")) {
    const row = make("p", { className: "tools" }, "Show");
    for (const [name, count] of [["all", Infinity], ["the best three", 3], ["none", 0]]) {
      const button = make("button", { type: "button", textContent: name });
      button.addEventListener("click", () => {
        const order = [...new Set(boxes.map((box) => box.dataset.m))];
        state.off = new Set(order.slice(count));
        if (state.off.has(state.pick)) state.pick = order[0];
        show();
        remember();
      });
      row.append(button);
    }
    table.closest(".scroll").before(row);
  }
  for (const box of all("input[data-when]")) {
    box.addEventListener("change", () => {
      state.when[box.checked ? "add" : "delete"](box.dataset.when);
      show();
      remember();
    });
  }

  // Points of figures: arrow keys walk along a line and from line to line, a touch finds the next.
  const tip = document.querySelector(".tip");
  const points = (svg) => all("g.series", svg).filter((g) => !g.dataset.m || !state.off.has(g.dataset.m))
    .map((g) => all(".mark > *", g).filter((mark) => mark.querySelector("title"))).filter((marks) => marks.length);
  let lit = null;
  const tell = (svg, mark) => {
    lit?.classList.remove("lit");
    lit = mark;
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add("lit");
    tip.textContent = mark.querySelector("title").textContent;
    const box = mark.getBoundingClientRect();
    const left = Math.min(Math.max(box.left - 90, 4), document.documentElement.clientWidth - 224);
    tip.style.left = `${left + window.scrollX}px`;
    tip.style.top = `${box.bottom + 8 + window.scrollY}px`;
    const m = mark.closest("g.series").dataset.m;
    if (m) choose(m);
  };
  for (const svg of all("figure svg.chart")) {
    if (!svg.querySelector(".mark title")) continue;
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (event.key === "Escape") tell(svg, null);
      if (!step) return;
      event.preventDefault();
      const lines = points(svg);
      if (!lines.length) return;
      let line = lines.findIndex((marks) => marks.includes(lit));
      let place = line < 0 ? 0 : lines[line].indexOf(lit);
      if (line < 0) {
        line = Math.max(0, lines.findIndex((marks) => marks[0].closest("g.series").dataset.m === state.pick));
      } else if (step[0] || lines[line].length === 1) {
        line = (line + (step[0] || step[1]) + lines.length) % lines.length;
        place = Math.min(place, lines[line].length - 1);
      } else {
        place = (place + step[1] + lines[line].length) % lines[line].length;
      }
      tell(svg, lines[line][place]);
    });
    svg.addEventListener("blur", () => tell(svg, null));
    svg.addEventListener("pointerdown", (event) => {
      const near = points(svg).flat().map((mark) => {
        const box = mark.getBoundingClientRect();
        return [Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY), mark];
      }).sort(([a], [b]) => a - b)[0];
      tell(svg, near && near[0] < 40 ? near[1] : null);
    });
  }

  // Saving: every figure as SVG, its numbers as CSV and as LaTeX; every table as CSV and LaTeX.
  const save = (name, text, type) => {
    const link = make("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const csv = (rows) => rows.map((row) => row.map((cell) => {
    const text = String(cell ?? "");
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",")).join("\n") + "\n";
  const signs = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "−": "-" };
  const tex = (text) => String(text).replace(/[\\_%&#${}~^±−]/g, (sign) => signs[sign] ?? `\\${sign}`);
  const words = (cell) => cell.textContent.trim().replace(/\s+/g, " ");
  const seen = (table) => Array.from(table.tBodies[0].rows).filter((row) => row.offsetParent !== null);
  const heads = (table) => Array.from(table.tHead.rows[0].cells, words);
  const booktabs = (kinds, head, rows) => ["% \\usepackage{booktabs}", `\\begin{tabular}{${kinds}}`, "\\toprule",
    ...[head, ...rows].map((row, k) => `${row.join(" & ")} \\\\${k ? "" : "\n\\midrule"}`), "\\bottomrule", "\\end{tabular}", ""].join("\n");
  const tableTex = (table) => {
    const cell = (node) => {
      const text = tex(words(node));
      return node.querySelector("strong") ? `\\textbf{${text}}` : node.querySelector("u") ? `\\underline{${text}}` : text;
    };
    const kinds = Array.from(table.tHead.rows[0].cells, (head) => (head.classList.contains("n") ? "r" : "l")).join("");
    return booktabs(kinds, heads(table).map(tex), seen(table).map((row) => Array.from(row.cells, cell)));
  };
  const numbers = (figure) => {
    const [[x, y], ...lines] = JSON.parse(figure.dataset.points);
    return { x, y, lines: lines.filter(([name]) => !state.off.has(keys.get(name))) };
  };
  const figureCsv = (figure) => {
    const { x, y, lines } = numbers(figure);
    return csv([["name", x || "place", y, "low", "high"], ...lines.flatMap(([name, ...points]) => points.map((point) => [name, ...point]))]);
  };
  const figureTex = (figure) => {
    const { x, y, lines } = numbers(figure);
    if (typeof lines[0]?.[1]?.[0] === "string") { // named places: a table
      const places = [...new Set(lines.flatMap(([, ...points]) => points.map(([name]) => name)))];
      const rows = lines.map(([name, ...points]) => [name, ...places.map((place) => points.find(([at]) => at === place)?.[1] ?? "")]);
      return booktabs(`l${"r".repeat(places.length)}`, ["", ...places].map(tex), rows.map((row) => row.map(tex)));
    }
    const plots = lines.map(([name, ...points]) => `\\addplot coordinates {${points.map(([a, b]) => `(${a},${b})`).join(" ")}}; \\addlegendentry{${tex(name)}}`);
    return ["% \\usepackage{pgfplots} \\pgfplotsset{compat=1.18}", "\\begin{tikzpicture}", `\\begin{axis}[width=\\columnwidth, xlabel={${tex(x)}}, ylabel={${tex(y)}}, legend style={font=\\scriptsize}, legend pos=outer north east]`, ...plots, "\\end{axis}", "\\end{tikzpicture}", ""].join("\n");
  };
  const drawn = (svg) => {
    // As on white paper, with the style written into every element, one column wide.
    document.documentElement.classList.add("paper");
    const copy = svg.cloneNode(true);
    const from = [svg, ...all("*", svg)];
    [copy, ...all("*", copy)].forEach((node, k) => {
      const style = getComputedStyle(from[k]);
      if (style.display === "none") node.setAttribute("display", "none");
      for (const name of ["fill", "stroke", "stroke-width", "opacity"]) {
        if (style[name] && node.tagName !== "title") node.setAttribute(name, style[name]);
      }
      node.removeAttribute("class");
    });
    document.documentElement.classList.remove("paper");
    const [, , wide, high] = svg.getAttribute("viewBox").split(" ").map(Number);
    copy.setAttribute("xmlns", "http" + "://www.w3.org/2000/svg");
    copy.setAttribute("width", "88mm");
    copy.setAttribute("height", `${(88 * high) / wide}mm`);
    copy.setAttribute("font-family", "sans-serif");
    return new XMLSerializer().serializeToString(copy);
  };
  const tools = (id, kinds) => {
    const link = make("a", { href: `#${id}`, textContent: "link" });
    link.setAttribute("aria-label", `link to ${id}`);
    const buttons = kinds.map(([name, what]) => {
      const button = make("button", { type: "button", textContent: name });
      button.setAttribute("aria-label", `${name} of ${id}`);
      button.addEventListener("click", what);
      return button;
    });
    return make("p", { className: "tools" }, link, ...buttons);
  };
  const equip = (table) => {
    table.closest(".scroll").after(tools(table.id, [
      ["CSV", () => save(`${table.id}.csv`, csv([heads(table), ...seen(table).map((row) => Array.from(row.cells, words))]), "text/csv")],
      ["LaTeX", () => save(`${table.id}.tex`, tableTex(table), "text/x-tex")],
    ]));
  };
  for (const figure of all("figure[id]")) {
    const svg = figure.querySelector("svg.chart");
    const kinds = [["SVG", () => save(`${figure.id}.svg`, drawn(svg), "image/svg+xml")]];
    if (figure.dataset.points) {
      kinds.push(
        ["CSV", () => save(`${figure.id}.csv`, figureCsv(figure), "text/csv")],
        ["LaTeX", () => save(`${figure.id}.tex`, figureTex(figure), "text/x-tex")],
      );
    }
    figure.append(tools(figure.id, kinds));
  }
  for (const table of all("table")) if (!table.closest("details")) equip(table);

  // A query that is opened: its values are drawn then.
  const NS = "http" + "://www.w3.org/2000/svg";
  for (const query of all("details.query")) {
    query.addEventListener("toggle", () => {
      if (query.open && !query.dataset.drawn) {
        query.dataset.drawn = "yes";
        for (const values of all(".values", query)) {
          const line = Number(values.dataset.line);
          const count = values.dataset.v.length;
          const size = line === count ? Math.max(2, Math.min(8, Math.floor(180 / line))) : Math.max(3, Math.floor(72 / line));
          const tall = line === count ? 14 : size;
          const svg = document.createElementNS(NS, "svg");
          const levels = Array.from({ length: 10 }, () => "");
          [...values.dataset.v].forEach((digit, k) => {
            levels[digit] += `M${(k % line) * size},${Math.floor(k / line) * tall}h${size}v${tall}h-${size}z`;
          });
          const wide = line * size, high = Math.ceil(count / line) * tall;
          for (const [name, value] of Object.entries({ viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, "aria-hidden": "true" })) svg.setAttribute(name, value);
          levels.forEach((d, level) => {
            if (!d || !level) return;
            const path = document.createElementNS(NS, "path");
            for (const [name, value] of Object.entries({ d, opacity: level / 9 })) path.setAttribute(name, value);
            svg.append(path);
          });
          values.before(svg);
        }
        const leans = all(".lean", query);
        const most = Math.max(...leans.map((lean) => Number(lean.dataset.size)), 0.01);
        for (const lean of leans) lean.style.width = `${(3.5 * lean.dataset.size) / most}rem`;
        for (const table of all("table", query)) equip(table);
        measure();
      }
      if (query.open) state.at = query.id;
      else if (state.at === query.id) state.at = "";
      if (recalled) remember();
    });
  }

  window.addEventListener("hashchange", recall);
  recall();
})();
