// The table of barriers after the current step, and the ledger of one mbarrier: every event of its phase, done and to come.
(function () {
  "use strict";
  const app = window.h100sim;
  const get = (id) => document.getElementById(id);
  let rows = [];
  let pinned = null;
  let shown = null;

  function cells(names) {
    return names.map((name) => app.element("td", { class: name }));
  }

  function set(cell, text) {
    if (cell.textContent !== text) cell.textContent = text;
  }

  // Who waits, as a chip per role with the number of its warps.
  function showWaiting(model, cell, ranks) {
    const key = ranks.join(" ");
    if (cell.dataset.ranks === key) return;
    cell.dataset.ranks = key;
    const roles = new Map();
    for (const rank of ranks) {
      const { role, colour } = model.warps.get(rank) || { role: "other CTA", colour: "#666" };
      roles.set(role, { colour, ranks: [...((roles.get(role) || {}).ranks || []), rank] });
    }
    const chips = [...roles].map(([role, own]) =>
      app.element(
        "em", { style: { background: own.colour }, title: `${role}: ${own.ranks.map((r) => "w" + r).join(" ")}` },
        `${app.short(role)} ×${own.ranks.length}`
      )
    );
    cell.replaceChildren(...chips);
  }

  function buildTable(model) {
    const head = ["barrier", "phase", "pending", "tx-count", "waiting"].map((name) => app.element("th", {}, name));
    const table = app.element("table", {}, app.element("thead", {}, app.element("tr", {}, ...head)));
    const body = app.element("tbody", {});
    rows = [...model.data.barriers.mbarriers, ...model.data.barriers.named].map((barrier) => {
      const tds = cells(["name", "phase", "pending", "tx", "waiting"]);
      tds[0].textContent = barrier.name || `named barrier ${barrier.id}`;
      const row = app.element("tr", {}, ...tds);
      if (barrier.name) {
        row.addEventListener("click", () => app.pinBarrier(pinned === barrier ? null : barrier));
        row.title = `mbarrier at shared offset 0x${barrier.address.toString(16)}`;
      }
      body.append(row);
      return { barrier, row, tds };
    });
    table.append(body);
    const none = app.element("p", { class: "empty" }, "This CTA used no barrier.");
    get("b-table").replaceChildren(rows.length ? table : none);
  }

  app.pinBarrier = function (barrier) {
    pinned = barrier;
    app.refresh();
  };

  function updateRow(model, { barrier, row, tds }) {
    const step = model.step;
    const at = app.lastAtMost(barrier.step, step);
    row.classList.toggle("touched", at >= 0 && barrier.step[at] === step);
    row.classList.toggle("pinned", barrier === shown);
    row.classList.toggle("absent", at < 0);
    if (at < 0) {
      for (const [i, text] of ["", "", "", ""].entries()) set(tds[i + 1], i === 0 ? (barrier.name ? "not initialised" : "") : text);
    } else if (barrier.name) {
      set(tds[1], `${barrier.phase[at]} (parity ${barrier.phase[at] & 1})`);
      set(tds[2], `${barrier.pending[at]} of ${barrier.expected[at]}`);
      set(tds[3], app.count(barrier.tx[at]));
    } else {
      set(tds[1], `${barrier.generation[at]}`);
      set(tds[2], barrier.expected[at] ? `${barrier.expected[at] - barrier.arrived[at]} of ${barrier.expected[at]}` : "idle");
      set(tds[3], "–");
    }
    showWaiting(model, tds[4], model.waiting(barrier.waits, step));
  }

  // The barrier of the last mbarrier event at or before the step, unless one is pinned.
  function chosen(model) {
    if (pinned && model.data.barriers.mbarriers.includes(pinned)) return pinned;
    let best = null;
    let latest = -1;
    for (const mbarrier of model.data.barriers.mbarriers) {
      const at = app.lastAtMost(mbarrier.step, model.step);
      if (at >= 0 && mbarrier.step[at] > latest) [best, latest] = [mbarrier, mbarrier.step[at]];
    }
    return best;
  }

  let ledger = { key: null, rows: [] };

  const withoutName = (words, name) => [" at", " on", ""].reduce((text, word) => text.replace(`${word} ${name}`, ""), words);

  function buildLedger(model, mbarrier, phase) {
    const list = [];
    const nodes = [];
    for (const p of [phase - 1, phase, phase + 1]) {
      const own = [...mbarrier.step.keys()].filter((i) => mbarrier.ledger_phase[i] === p);
      if (!own.length) continue;
      const name = p < 0 ? "before phase 0" : `phase ${p}, parity ${p & 1}${p === phase ? " (now)" : ""}`;
      nodes.push(app.element("tr", { class: p === phase ? "phase now" : "phase" }, app.element("th", { colspan: 2 }, name)));
      for (const i of own) {
        const step = mbarrier.step[i];
        const row = app.element(
          "tr", { onclick: () => app.goto(step) },
          app.element("td", { class: "cycle" }, app.count(model.steps.time[step])),
          app.element("td", {}, withoutName(app.sentence(model, step), mbarrier.name).replace(` phase ${p}`, ""))
        );
        list.push({ step, row });
        nodes.push(row);
      }
    }
    get("b-ledger").replaceChildren(app.element("table", {}, app.element("tbody", {}, ...nodes)));
    ledger = { key: `${mbarrier.identity}/${phase}`, rows: list };
  }

  function updateLedger(model) {
    const state = shown && model.mbarrierAt(shown, model.step);
    set(get("b-ledger-name"), shown ? `${shown.name}${pinned === shown ? " (pinned)" : ""}; cycle, event` : "");
    if (!shown) {
      ledger = { key: null, rows: [] };
      const words = model.data.barriers.mbarriers.length ? "No mbarrier is initialised yet." : "This CTA uses no mbarrier.";
      get("b-ledger").replaceChildren(app.element("p", { class: "empty" }, words));
      return;
    }
    const phase = state ? state.phase : 0;
    if (ledger.key !== `${shown.identity}/${phase}`) buildLedger(model, shown, phase);
    let last = null;
    for (const entry of ledger.rows) {
      entry.row.classList.toggle("future", entry.step > model.step);
      entry.row.classList.toggle("now", entry.step === model.step);
      if (entry.step <= model.step) last = entry.row;
    }
    const box = get("b-ledger");
    if (last) box.scrollTop = Math.max(0, last.offsetTop - box.clientHeight / 2);
  }

  app.views.push({
    build(model) {
      pinned = null;
      ledger = { key: null, rows: [] };
      buildTable(model);
    },
    update(model) {
      shown = chosen(model);
      for (const row of rows) updateRow(model, row);
      updateLedger(model);
    },
  });
})();
