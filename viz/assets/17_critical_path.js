// The critical path: a line through the timeline, what the launch follows from beside it, and the slack of what is not on it.
(function () {
  "use strict";
  const app = window.h100sim;
  const get = (id) => document.getElementById(id);
  const COLOUR = "#5e00b8";
  const state = { isOn: false, marks: [], chosen: -1, rows: [], slack: new Map(), now: null };
  let wired = false;

  // --- in the timeline --------------------------------------------------------------------------------------------

  function rowsByPlace() {
    const { view } = app.timeline;
    const { copies, wgmmas } = view.data;
    const units = ({ op, row }) => new Map(Array.from(op, (o, i) => [o, view.rows[row[i]]]));
    const rows = (name) => new Map(view.rows.filter((row) => row[name] !== undefined && row[name] >= 0).map((row) => [row[name], row]));
    return [rows("rank"), units(copies), units(wgmmas), rows("identity")];
  }

  function place() {
    const { start = [], end, place: places, key, link } = app.model.data.critical_path.marks;
    const maps = rowsByPlace();
    state.marks = Array.from(start, (from, i) => ({ from, to: end[i], row: maps[places[i]].get(key[i]), link: link[i] })).filter((m) => m.row);
  }

  // One line along the rows, with a step where the path goes from one row to the next without a gap in time.
  function line(ctx, marks, x) {
    ctx.beginPath();
    let last = null;
    for (const mark of marks) {
      const y = mark.row.y + (mark.row.height - 1) / 2;
      if (last && last.to === mark.from) ctx.lineTo(x(mark.from), y);
      else ctx.moveTo(x(mark.from), y);
      ctx.lineTo(x(mark.to), y);
      last = mark;
    }
    ctx.stroke();
  }

  function draw(ctx, view, x) {
    if (!state.isOn) return;
    ctx.fillStyle = "rgba(255,255,255,0.5)";
    ctx.fillRect(0, 0, view.width, view.height);
    const seen = state.marks.filter((m) => m.to >= view.from && m.from <= view.to);
    ctx.lineJoin = "round";
    for (const [colour, width] of [["#fff", 5], [COLOUR, 2.5]]) {
      ctx.strokeStyle = colour;
      ctx.lineWidth = width;
      line(ctx, seen, x);
    }
    ctx.lineWidth = 6;
    line(ctx, seen.filter((m) => m.link === state.chosen), x);
  }

  // What a tooltip says of a bar: the link of the path that runs through it there, and its slack.
  function notes(bar) {
    const found = [];
    const mark = state.isOn && state.marks.find((m) => m.row === bar.row && m.from <= bar.time && bar.time <= m.to);
    if (mark) found.push(`critical path: ${words(mark.link)}`);
    const slack = state.slack.get(bar.op);
    if (slack !== undefined) found.push(slack ? `slack: its end could come ${app.count(slack)} cycles later` : "slack: none, the launch follows from its end");
    return found;
  }

  function words(link) {
    const { number, unit, reason } = app.model.data.critical_path.links;
    const at = number.indexOf(link);
    return at < 0 ? "a short link" : `${unit[at]}, ${reason[at]}`;
  }

  // --- the table --------------------------------------------------------------------------------------------------

  function shares({ shares: all, cycles }) {
    return all.map(([what, n]) => {
      const share = n / Math.max(cycles, 1);
      return app.element(
        "tr", {}, app.element("td", { class: "number" }, app.count(n)), app.element("td", { class: "number" }, `${(100 * share).toFixed(1)} %`),
        app.element("td", { class: "what" }, app.element("em", { style: { width: `${100 * share}%` } }), app.element("span", {}, what))
      );
    });
  }

  function links({ links: l }) {
    return Array.from(l.start || [], (start, i) => {
      const where = l.cta[i] >= 0 && l.cta[i] !== app.model.data.header.cta ? `CTA ${l.cta[i]}: ` : "";
      const title = `${l.reason[i]}\n${l.place[i]}\ncycles ${app.count(start)} to ${app.count(l.end[i])}\nClick: the step at which it ends`;
      return app.element(
        "tr", { title, onclick: () => go(i), onmouseenter: () => choose(l.number[i]), onmouseleave: () => choose(-1) },
        app.element("td", { class: "number" }, app.count(start)), app.element("td", { class: "number" }, app.count(l.end[i] - start)),
        app.element("td", {}, `${where}${l.unit[i]}`, app.element("i", {}, l.what[i] ? ` ${l.what[i]}` : ""))
      );
    });
  }

  function choose(link) {
    state.chosen = link;
    app.timeline.redraw();
  }

  function go(i) {
    const { step, event, cta } = app.model.data.critical_path.links;
    if (step[i] >= 0) app.goto(step[i]);
    else if (event[i] >= 0 && cta[i] >= 0) app.open(cta[i], 0, event[i]);
    else app.goto(app.model.length - 1);
  }

  // A path that runs through other CTAs only: where it does most.
  function elsewhere({ links: l }) {
    const cycles = new Map();
    for (let i = 0; i < (l.start || []).length; i++) if (l.cta[i] >= 0) cycles.set(l.cta[i], (cycles.get(l.cta[i]) || 0) + l.end[i] - l.start[i]);
    const node = get("p-elsewhere");
    node.hidden = state.marks.length > 0 || !cycles.size;
    if (node.hidden) return;
    const [cta] = [...cycles].sort((a, b) => b[1] - a[1])[0];
    node.replaceChildren("It does not run through this CTA but through ", app.element("button", { onclick: () => app.open(cta, 0) }, `CTA ${cta}`));
  }

  const head = (...names) => app.element("tr", {}, ...names.map((name) => app.element("th", {}, name)));

  function toggle() {
    state.isOn = !state.isOn;
    show();
  }

  function show() {
    get("p-switch").setAttribute("aria-pressed", String(state.isOn));
    get("p-path").hidden = !state.isOn;
    app.timeline.resize();
  }

  app.criticalPath = { toggle, state };
  app.timeline.layers.push(draw);
  app.timeline.notes.push(notes);
  app.views.push({
    build(model) {
      const d = model.data.critical_path;
      if (!wired) get("p-switch").addEventListener("click", toggle);
      wired = true;
      place();
      elsewhere(d);
      state.slack = new Map(Array.from(d.slack.op || [], (op, i) => [op, d.slack.cycles[i]]));
      const listed = d.links.start ? d.links.start.length : 0;
      get("p-note").textContent = listed < d.total ? `the ${app.count(listed)} longest of ${app.count(d.total)} links` : `${app.count(d.cycles)} cycles`;
      get("p-shares").replaceChildren(head("cycles", "share", "went into"), ...shares(d));
      state.rows = links(d);
      get("p-links").replaceChildren(head("from", "cycles", "where"), ...state.rows);
      if (!listed) get("p-links").replaceChildren(app.element("tr", {}, app.element("td", { class: "empty" }, "Nothing happened in this launch.")));
      show();
    },
    update(model) {
      if (!state.isOn) return;
      const { start = [], end } = model.data.critical_path.links;
      const time = model.steps.time[model.step];
      // A step at which one link ends and the next begins belongs to the one that ends.
      const at = Math.max(app.lastAtMost(start, time - 1), 0);
      const now = time <= end[at] ? state.rows[at] : null;
      if (now === state.now) return;
      if (state.now) state.now.classList.remove("now");
      if (now) now.classList.add("now");
      if (now) now.scrollIntoView({ block: "nearest" });
      state.now = now;
    },
  });
})();
