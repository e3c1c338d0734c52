"use strict";
(() => {
  const one = (id) => document.getElementById(id);
  const make = (tag, text = "", more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);
  const percent = (p) => `${(100 * p).toFixed(1)} %`;

  // Every answer is JSON; what went wrong comes as an error with words.
  const ask = async (path, body) => {
    const how = body === undefined ? {} : body instanceof File
      ? { method: "POST", body } : { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
    let answer;
    try {
      answer = await fetch(path, how);
    } catch {
      throw new Error("the program on this machine does not answer; is it still running?");
    }
    const type = answer.headers.get("Content-Type") ?? "";
    const values = type.startsWith("application/json") ? await answer.json() : {};
    if (!answer.ok) throw new Error(`refused (${answer.status})`);
    if (values.error && !values.files) throw new Error(values.error);
    return values;
  };
  const complain = (box, message, excerpt = "") => {
    box.replaceChildren();
    box.hidden = !message;
    if (!message) return;
    box.append(make("p", message));
    if (excerpt) box.insertAdjacentHTML("beforeend", excerpt);
  };
  const options = (select, names, first) => {
    const before = select.value;
    select.replaceChildren(make("option", first, { value: "" }), ...names.map((name) => make("option", name, { value: name })));
    select.value = names.includes(before) ? before : "";
  };
  const tick = (text, checked, disabled = false) => {
    const label = make("label"), box = make("input", "", { type: "checkbox", checked, disabled });
    label.append(box, text);
    return [label, box];
  };
  const reading = () => ({ labels: one("labels").value, key: one("key").value });

  // Tables and how they join.
  const drop = one("drop");
  let turn = 0, held = [], whole = false;
  const look = async () => {
    const mine = ++turn;
    one("told").textContent = "reading …";
    let seen;
    try {
      seen = await ask("look", reading());
    } catch (error) {
      seen = { files: [], columns: [], error: error.message };
    }
    if (mine !== turn) return; // something newer is on its way
    held = seen.files;
    one("given").replaceChildren(...seen.files.map(([name, size]) => {
      const item = make("li", `${name.replace(/^tables\//, "")} (${(size / 1000).toFixed(0)} kB)`);
      const away = make("button", "remove", { type: "button" });
      away.setAttribute("aria-label", `remove ${name}`);
      away.addEventListener("click", async () => { await ask("remove", { name }); look(); });
      item.append(away);
      return item;
    }));
    options(one("labels"), seen.columns, "found by itself");
    options(one("key"), seen.columns, "found by itself");
    complain(one("error"), seen.error, seen.excerpt);
    one("told").textContent = seen.html ? `${seen.files.length} ${seen.files.length === 1 ? "file" : "files"} read.` : "";
    one("reading").hidden = !seen.files.length;
    one("notes").replaceChildren(...(seen.notes ?? []).map(([note, place]) => {
      const item = make("li", note);
      item.insertAdjacentHTML("beforeend", place);
      return item;
    }));
    one("join").hidden = !seen.html;
    one("joined").innerHTML = seen.html ?? "";
    one("who").hidden = !seen.html;
    one("answers").hidden = true;
    if (!seen.html) return;
    one("roles").textContent = seen.roles;
    one("classes").hidden = !seen.classes.length;
    one("classes").querySelector(".ticks").replaceChildren(...seen.classes.map(([name, count, isNew]) => {
      const [label, box] = tick(`${name} (${count})`, isNew);
      box.value = name;
      box.addEventListener("change", ready);
      return label;
    }));
    whole = seen.ready;
    ready();
  };
  const chosen = () => Array.from(one("classes").querySelectorAll("input:checked")).map((box) => box.value);
  const ready = () => { one("fit").disabled = !whole || (!one("classes").hidden && chosen().length < 2); };
  const upload = async (files) => {
    complain(one("error"), "");
    // Told here, because a file that is refused may not be read to its end.
    const into = one("set").value;
    const names = Array.from(files, (file) => `${into}/${file.name}`);
    const kept = held.filter(([name]) => !names.includes(name)).reduce((sum, [, size]) => sum + size, 0);
    if (Array.from(files).reduce((sum, file) => sum + file.size, kept) > Number(drop.dataset.most)) {
      complain(one("error"), `The files have more than ${drop.dataset.most / 1e6} MB together; 'fewview serve --megabytes' takes more.`);
      return;
    }
    for (const file of files) {
      one("told").textContent = `taking ${file.name} …`;
      try {
        await ask(`upload?set=${into}&name=${encodeURIComponent(file.name)}`, file);
      } catch (error) {
        one("told").textContent = "";
        complain(one("error"), `${file.name}: ${error.message}`);
        return;
      }
    }
    await look();
  };
  one("files").addEventListener("change", async (event) => { await upload(event.target.files); event.target.value = ""; });
  for (const name of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", name === "dragover");
      if (name === "drop") upload(event.dataTransfer.files);
    });
  }
  for (const id of ["labels", "key"]) one(id).addEventListener("change", look);
  one("forget").addEventListener("click", async () => {
    try { await ask("forget", {}); } catch (error) { complain(one("error"), error.message); return; }
    look();
  });

  // Fitting.
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  one("fit").addEventListener("click", async () => {
    one("fit").disabled = true;
    one("answers").hidden = true;
    complain(one("failed"), "");
    one("progress").hidden = false;
    try {
      await ask("fit", { ...reading(), new: chosen(), method: one("method").value });
      for (;;) {
        const job = await ask("state");
        const part = job.total ? ` ${job.done} of ${job.total}` : "";
        one("stage").textContent = `Step ${job.stage + 1} of ${job.stages.length}: ${job.stages[job.stage]}${part}, ${job.seconds} s${job.text ? ` (${job.text})` : ""}`;
        if (job.total) { one("bar").max = job.total; one("bar").value = job.done; } else { one("bar").max = job.stages.length; one("bar").value = job.stage + 0.5; }
        if (job.finished) break;
        await wait(300);
      }
      show(await ask("result"));
    } catch (error) {
      complain(one("failed"), error.message);
    }
    one("progress").hidden = true;
    ready();
  });

  // Answers, and what they would be without a view.
  let views = [];
  const put = (html) => {
    one("result").innerHTML = html;
    fewviewSamples(one("result"));
    for (const button of one("result").querySelectorAll("button.open")) button.addEventListener("click", () => switches(button), { once: true });
  };
  const show = (result) => {
    views = result.views;
    one("answers").hidden = false;
    one("said").replaceChildren(...result.said.map((text) => make("li", text)));
    one("commands").textContent = result.commands.join("\n");
    one("moved").textContent = "";
    one("off").querySelector(".ticks").replaceChildren(...views.map((view) => {
      const [label, box] = tick(view, true);
      box.value = view;
      box.addEventListener("change", everywhere);
      return label;
    }));
    put(result.html);
    one("answers-title").scrollIntoView();
  };
  const switched = () => Array.from(one("off").querySelectorAll("input:not(:checked)"), (box) => box.value);
  const everywhere = async () => {
    const off = switched();
    try {
      const found = await ask("what-if", { off });
      put(found.html);
      one("moved").textContent = off.length
        ? `Without ${off.join(", ")}: ${found.changed} of ${found.total} answers change.${found.bare ? ` ${found.bare} samples have no other view and keep theirs.` : ""}` : "";
    } catch (error) {
      one("moved").textContent = error.message;
    }
  };
  const switches = (button) => {
    const body = button.closest("tbody"), inside = body.querySelector(".inside");
    const row = Number(button.getAttribute("aria-controls").slice(1));
    const lacks = body.dataset.lacks.split(", ");
    const set = make("fieldset"), ticks = make("div", "", { className: "ticks" }), verdict = make("p", "", { className: "verdict" });
    verdict.setAttribute("role", "status");
    set.append(make("legend", `What if? Views of ${button.textContent} that are used:`), ticks, verdict);
    const reasons = make("div");
    reasons.append(...inside.childNodes);
    const before = Array.from(reasons.childNodes);
    const boxes = views.map((view) => {
      const [label, box] = tick(view, !lacks.includes(view), lacks.includes(view));
      box.value = view;
      box.addEventListener("change", async () => {
        const off = boxes.filter((other) => !other.checked && !other.disabled).map((other) => other.value);
        if (!off.length) { verdict.textContent = ""; reasons.replaceChildren(...before); return; }
        try {
          const found = await ask("what-if", { row, off, everywhere: switched() });
          verdict.textContent = found.label === found.before
            ? `Still ${found.label}: ${percent(found.probability)}, was ${percent(found.was)}.`
            : `Without ${off.join(", ")} the answer is ${found.label} (${percent(found.probability)}) instead of ${found.before} (${percent(found.was)}).`;
          reasons.innerHTML = found.card;
        } catch (error) {
          verdict.textContent = error.message;
          box.checked = true;
        }
      });
      ticks.append(label);
      return box;
    });
    inside.append(set, reasons);
  };
  one("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(one("commands").textContent);
      one("copied").textContent = "copied";
    } catch {
      getSelection().selectAllChildren(one("commands"));
      one("copied").textContent = "selected; copy them with the keyboard";
    }
  });
  look();
})();
