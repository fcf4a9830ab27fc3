// Python and PTX with a chip per role at the line where its warps stand; the line of the current step is lit and in view.
(function () {
  "use strict";
  const app = window.h100sim;
  const get = (id) => document.getElementById(id);
  const LINE = 16;
  let panes = [];
  let shownFile = -1;

  function fill(node, text, linesOf) {
    const lines = text === null ? [] : text.split("\n");
    const rows = lines.map((line, i) =>
      app.element("div", { class: "line", title: "Click: next step at this line (Shift: previous)", onclick: (e) => visit(linesOf, i + 1, e.shiftKey) }, app.element("b", {}, String(i + 1)), app.element("span", { class: "chips" }), app.element("code", {}, line || " "))
    );
    node.replaceChildren(...rows);
    return { node, rows, lit: null, chips: [] };
  }

  // The next (or previous) step that executes a line, in any warp; past the end it begins again.
  function visit(linesOf, line, backwards) {
    const { steps, length, step, instructions } = app.model;
    const hits = instructions.filter((i) => linesOf(steps.pc[i]) === line);
    if (!hits.length || !length) return;
    const at = app.lastAtMost(hits, backwards ? step - 1 : step) + (backwards ? 0 : 1);
    app.goto(hits[(at + hits.length) % hits.length]);
  }

  function note(node, words) {
    node.replaceChildren(app.element("p", { class: "empty" }, words));
    return { node, rows: [], lit: null, chips: [] };
  }

  function openFile(model, file) {
    const source = model.data.source;
    shownFile = file;
    const hasText = file >= 0 && source.files.length && typeof source.files[file].text === "string";
    get("s-panes").classList.toggle("ptx-only", !hasText);
    for (const pane of panes) if (pane) pane.height = 0;
    const title = get("s-python-title");
    if (file < 0 || !source.files.length) {
      title.textContent = "Source";
      panes[0] = note(get("s-python"), "This PTX names no source lines (no .loc directives): only the PTX can be followed.");
    } else if (!hasText) {
      title.textContent = source.files[file].name;
      panes[0] = note(get("s-python"), `The trace names ${source.files[file].path} but carries no text of it.`);
    } else {
      title.textContent = source.files[file].name;
      panes[0] = fill(get("s-python"), source.files[file].text, (pc) => (source.file[pc] === file ? source.line[pc] : -1));
    }
  }

  // Where the roles stand: [line, role, ranks], one entry per line and role.
  function standing(model, lineOf) {
    const found = new Map();
    for (const warp of model.warps.values()) {
      const at = model.position(warp.rank, model.step);
      const pc = at === null || at < 0 ? -1 : pcAt(model, warp.rank, at);
      const line = pc < 0 ? -1 : lineOf(pc);
      if (line < 1) continue;
      const key = line + "|" + warp.role;
      if (!found.has(key)) found.set(key, { line, warp, ranks: [] });
      found.get(key).ranks.push(warp.rank);
    }
    return [...found.values()];
  }

  function pcAt(model, rank, step) {
    const list = model.stepsOf.get(rank);
    for (let i = app.lastAtMost(list, step); i >= 0; i--) if (model.steps.pc[list[i]] >= 0) return model.steps.pc[list[i]];
    return -1;
  }

  // A unit's step has no instruction of its own: keep the selected warp's line in view, or that of one that still runs.
  function pcInView(model) {
    for (const rank of [model.rank, ...[...model.warps.keys()].reverse()]) {
      const at = model.position(rank, model.step);
      if (at !== null && at >= 0) return pcAt(model, rank, at);
    }
    return -1;
  }

  // Chips at `places`; line `current` lit (-1: none); line `inView` scrolled to where it can be read.
  function mark(pane, places, current, inView) {
    for (const chip of pane.chips) chip.remove();
    pane.chips = places
      .filter((place) => pane.rows[place.line - 1])
      .map((place) => {
        const chip = app.element(
          "em", { style: { background: place.warp.colour }, title: `${place.warp.role}: ${place.ranks.map((r) => "w" + r).join(" ")}` },
          app.short(place.warp.role)
        );
        pane.rows[place.line - 1].children[1].append(chip);
        return chip;
      });
    const row = pane.rows[current - 1] || null;
    if (pane.lit && pane.lit !== row) pane.lit.classList.remove("lit");
    if (row) row.classList.add("lit");
    if (pane.rows[inView - 1]) {
      const height = (pane.height = pane.height || pane.node.clientHeight);
      const top = (inView - 1) * LINE;
      if (top < pane.node.scrollTop + LINE || top > pane.node.scrollTop + height - 3 * LINE) {
        pane.node.scrollTop = Math.max(0, top - height / 2);
      }
    }
    pane.lit = row;
  }

  app.views.push({
    build(model) {
      const roles = new Map([...model.warps.values()].map((w) => [w.role, w.colour]));
      get("s-roles").replaceChildren(
        ...[...roles].map(([role, colour]) =>
          app.element("span", { class: "role" }, app.element("em", { style: { background: colour } }, app.short(role)), " ", role)
        )
      );
      panes = [null, fill(get("s-ptx"), model.data.source.ptx, (pc) => model.data.source.ptx_line[pc])];
      openFile(model, model.data.source.files.length ? 0 : -1);
    },
    update(model) {
      const { ptx_line, line, file } = model.data.source;
      const pc = model.steps.pc[model.step];
      const near = pc >= 0 ? pc : pcInView(model);
      if (near >= 0 && file[near] >= 0 && file[near] !== shownFile) openFile(model, file[near]);
      const sourceLine = (p) => (p >= 0 && file[p] === shownFile ? line[p] : -1);
      const ptxLine = (p) => (p >= 0 ? ptx_line[p] : -1);
      mark(panes[0], standing(model, sourceLine), sourceLine(pc), sourceLine(near));
      mark(panes[1], standing(model, ptxLine), ptxLine(pc), ptxLine(near));
    },
  });
})();
