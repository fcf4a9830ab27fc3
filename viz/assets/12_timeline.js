// The timeline on a canvas. Bars that fall into one pixel are drawn once, so a frame costs rows times pixels, not events.
// Playhead and arrows lie above the canvas: a step does not redraw the bars.
(function () {
  "use strict";
  const app = window.h100sim;
  const get = (id) => document.getElementById(id);
  const ROW = { warpgroup: 9, tma: 8, tensor: 8, mbarrier: 10 };
  const UNIT_LANE_HEIGHT = 50;
  const GAP = 5;
  const AXIS = 18;
  const FONT = "10px system-ui, sans-serif";
  const view = { from: 0, to: 1, width: 0, height: 0, rows: [], data: null, selected: null, arrowKey: "" };
  let wired = false;

  const scale = () => view.width / (view.to - view.from);
  const x = (time) => (time - view.from) * scale();
  const timeAt = (px) => view.from + px / scale();

  // --- geometry ---------------------------------------------------------------------------------------------------

  function layOut(lanes) {
    view.rows = [];
    let y = AXIS + GAP;
    for (const lane of lanes) {
      const unit = lane.kind === "tma" || lane.kind === "tensor";
      const height = unit ? Math.max(3, Math.min(ROW[lane.kind], UNIT_LANE_HEIGHT / lane.rows.length)) : ROW[lane.kind];
      lane.y = y;
      for (const row of lane.rows) {
        view.rows.push({ ...row, lane, y, height });
        y += height;
      }
      lane.height = Math.max(y - lane.y, lane.kind === "mbarrier" ? 0 : 14);
      y = lane.y + lane.height + GAP;
    }
    view.height = y;
  }

  function labels(lanes) {
    const nodes = [app.element("div", { class: "unit", style: { top: "2px" } }, "cycles")];
    for (const lane of lanes) {
      if (lane.kind === "mbarrier") {
        const own = view.rows.filter((row) => row.lane === lane);
        nodes.push(...own.map((row) => app.element("div", { class: "small", style: { top: `${row.y - 2}px` } }, row.label)));
        continue;
      }
      const swatch = lane.rows[0].colour ? [app.element("em", { style: { background: lane.rows[0].colour } })] : [];
      const ranks = lane.kind === "warpgroup" ? [app.element("i", {}, ` w${lane.rows[0].rank}${lane.rows.length > 1 ? `–w${lane.rows[lane.rows.length - 1].rank}` : ""}`)] : [];
      nodes.push(
        app.element("div", { class: "lane", style: { top: `${lane.y}px`, height: `${lane.height}px` } }, ...swatch, lane.label, ...ranks)
      );
    }
    get("t-labels").replaceChildren(...nodes);
    get("t-labels").style.height = `${view.height}px`;
  }

  function legend(styles) {
    const shown = styles.filter((_, i) => view.data.bars.category.includes(i));
    get("t-legend").replaceChildren(
      ...shown.map((s) =>
        app.element("span", {}, app.element("em", { title: s.words, style: { background: s.fill || "linear-gradient(90deg,#0072b2,#d55e00,#009e73)" } }), " ", s.legend)
      )
    );
  }

  function resize() {
    const plot = get("t-plot");
    view.width = plot.clientWidth;
    for (const [id, height] of [["t-bars", view.height], ["t-arrows", view.height], ["t-axis", AXIS]]) {
      const canvas = get(id);
      const ratio = window.devicePixelRatio || 1;
      canvas.width = Math.round(view.width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${view.width}px`;
      canvas.style.height = `${height}px`;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    plot.style.height = `${view.height}px`;
    view.arrowKey = "";
    draw();
  }

  // --- drawing ----------------------------------------------------------------------------------------------------

  function drawRow(ctx, row, index) {
    const { first, start, end, category, text, texts } = view.data.bars;
    const last = first[index + 1];
    const s = scale();
    const ticks = row.rank >= 0 && s >= 0.6;
    let i = firstVisible(index);
    let filled = -1;
    for (; i < last && start[i] < view.to; i++) {
      const left = Math.max((start[i] - view.from) * s, 0);
      const right = Math.min((end[i] - view.from) * s, view.width);
      if (right <= filled) continue;
      const style = view.data.styles[category[i]];
      const from = Math.max(left, filled);
      ctx.fillStyle = style.fill || row.colour;
      ctx.globalAlpha = style.fill || !ticks ? 1 : 0.35;
      const width = Math.max(right - from, 0.6);
      ctx.fillRect(from, row.y, width, row.height - 1);
      ctx.globalAlpha = 1;
      if (style.fill && right - left > 6) {
        ctx.fillStyle = "rgba(255,255,255,0.8)";
        ctx.fillRect(right - 0.6, row.y, 0.6, row.height - 1);
      }
      const word = texts[text[i]];
      if (word && row.height >= 7.5 && right - left > 32) label(ctx, word, left, right, row, style);
      filled = Math.ceil(right);
    }
    if (ticks) drawTicks(ctx, row);
  }

  function label(ctx, word, left, right, row, style) {
    ctx.font = `${Math.min(row.height, 9)}px system-ui, sans-serif`;
    const room = Math.floor((right - left - 4) / (Math.min(row.height, 9) * 0.52));
    if (room < 3) return;
    ctx.fillStyle = style.ink;
    ctx.fillText(word.length > room ? word.slice(0, room - 1) + "…" : word, left + 2, row.y + row.height - 2);
  }

  // One dark tick per issued instruction, once a cycle is wide enough to see.
  function drawTicks(ctx, row) {
    const { time, kind } = app.model.steps;
    const list = app.model.stepsOf.get(row.rank);
    const issued = app.model.kinds.ISSUED;
    const width = Math.max(1, scale() * 0.8);
    ctx.fillStyle = row.colour;
    let low = 0;
    for (let high = list.length; low < high; ) {
      const middle = (low + high) >> 1;
      if (time[list[middle]] < view.from - 1) low = middle + 1;
      else high = middle;
    }
    for (let i = low; i < list.length && time[list[i]] < view.to; i++) {
      if (kind[list[i]] === issued) ctx.fillRect(x(time[list[i]]), row.y, width, row.height - 1);
    }
  }

  function firstVisible(index) {
    const { first, end } = view.data.bars;
    let low = first[index];
    let high = first[index + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (end[middle] <= view.from) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function drawAxis() {
    const ctx = get("t-axis").getContext("2d");
    ctx.clearRect(0, 0, view.width, AXIS);
    ctx.fillStyle = "#46515c";
    ctx.font = FONT;
    const rough = (view.to - view.from) / Math.max(view.width / 90, 1);
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    const tick = Math.max(1, power * [1, 2, 5, 10].find((m) => power * m >= rough));
    for (let t = Math.max(Math.ceil(view.from / tick), 0) * tick; t <= view.to; t += tick) {
      ctx.fillRect(x(t), 12, 1, 6);
      const word = app.count(t);
      if (x(t) + 3 + ctx.measureText(word).width <= view.width) ctx.fillText(word, x(t) + 3, 11);
    }
  }

  function draw() {
    if (!view.data) return;
    const ctx = get("t-bars").getContext("2d");
    ctx.clearRect(0, 0, view.width, view.height);
    for (const lane of view.data.lanes) {
      ctx.fillStyle = lane.kind === "mbarrier" ? "#fff" : "#f7f8fa";
      ctx.fillRect(0, lane.y - 1, view.width, lane.height + 1);
    }
    view.rows.forEach((row, index) => drawRow(ctx, row, index));
    for (const layer of app.timeline.layers) layer(ctx, view, x);
    drawAxis();
    view.arrowKey = "";
    overlay(app.model);
  }

  let pending = false;
  function redraw() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      draw();
    });
  }

  // --- arrows: what completed a phase, and whom it let go on ------------------------------------------------------

  function arrowsOf(model) {
    const event = app.eventAt(model, model.step);
    const wait = { BLOCKED: 1, RESUMED: 1 }[event.name] && model.data.controls.waits[event.a] === "mbarrier";
    const identity = event.name === "MBARRIER_FLIPPED" ? event.a : wait ? event.b : event.name === "MBARRIER_WAITED" && event.c ? event.a : null;
    const mbarrier = model.mbarriers.get(identity);
    if (!mbarrier) return [];
    const list = model.flips.filter((f) => model.steps.a[f] === identity);
    const flip = event.name === "BLOCKED" ? list.find((f) => f > model.step) : list[app.lastAtMost(list, model.step)];
    if (flip === undefined) return [];
    return [...causeOf(model, mbarrier, flip), ...releasedBy(model, mbarrier, flip)];
  }

  function causeOf(model, mbarrier, flip) {
    const { MBARRIER_ARRIVED, MBARRIER_COMPLETED_TX } = model.kinds;
    const at = app.lastAtMost(mbarrier.step, flip - 1);
    if (at < 0) return [];
    const step = mbarrier.step[at];
    const time = model.steps.time[step];
    const to = { row: rowOf((r) => r.identity === mbarrier.identity), time: model.steps.time[flip] };
    if (model.steps.kind[step] === MBARRIER_ARRIVED) return [{ from: { row: rowOf((r) => r.rank === model.steps.rank[step]), time }, to }];
    if (model.steps.kind[step] !== MBARRIER_COMPLETED_TX) return [];
    const copy = view.data.copies.op.indexOf(model.steps.op[step]);
    return copy < 0 ? [] : [{ from: { row: view.rows[view.data.copies.row[copy]], time }, to }];
  }

  function releasedBy(model, mbarrier, flip) {
    const { rank, to } = mbarrier.waits;
    const from = { row: rowOf((r) => r.identity === mbarrier.identity), time: model.steps.time[flip] };
    const arrows = [];
    const next = model.flips.find((f) => f > flip && model.steps.a[f] === mbarrier.identity) || model.length;
    for (let i = 0; i < to.length; i++) {
      if (to[i] >= flip && to[i] < next && mbarrier.waits.from[i] < flip) {
        arrows.push({ from, to: { row: rowOf((r) => r.rank === rank[i]), time: model.steps.time[to[i]] } });
      }
    }
    return arrows;
  }

  const rowOf = (test) => view.rows.find(test);

  function drawArrows(model) {
    const arrows = arrowsOf(model);
    const ctx = get("t-arrows").getContext("2d");
    ctx.clearRect(0, 0, view.width, view.height);
    ctx.strokeStyle = ctx.fillStyle = "#111";
    ctx.lineWidth = 1.2;
    for (const { from, to } of arrows) {
      if (!from.row || !to.row) continue;
      const [x0, y0, x1, y1] = [x(from.time), from.row.y + from.row.height / 2, x(to.time), to.row.y + to.row.height / 2];
      const angle = Math.atan2(y1 - y0, x1 - x0);
      ctx.beginPath();
      ctx.moveTo(x0, y0);
      ctx.lineTo(x1, y1);
      ctx.stroke();
      ctx.beginPath();
      ctx.moveTo(x1, y1);
      ctx.lineTo(x1 - 6 * Math.cos(angle - 0.45), y1 - 6 * Math.sin(angle - 0.45));
      ctx.lineTo(x1 - 6 * Math.cos(angle + 0.45), y1 - 6 * Math.sin(angle + 0.45));
      ctx.fill();
    }
  }

  // --- overlay ----------------------------------------------------------------------------------------------------

  function overlay(model) {
    const px = x(model.steps.time[model.step]);
    const head = get("t-playhead");
    head.style.transform = `translateX(${px}px)`;
    head.style.visibility = px < 0 || px > view.width ? "hidden" : "visible";
    const box = get("t-selection").style;
    const bar = view.selected;
    box.visibility = bar ? "visible" : "hidden";
    if (bar) {
      const left = Math.max(x(bar.start), -2);
      box.transform = `translate(${left}px, ${bar.row.y - 1}px)`;
      box.width = `${Math.max(Math.min(x(bar.end), view.width + 2) - left, 1)}px`;
      box.height = `${bar.row.height}px`;
    }
    const key = `${model.step}/${view.from}/${view.to}`;
    if (key !== view.arrowKey) drawArrows(model);
    view.arrowKey = key;
  }

  function follow(model) {
    const time = model.steps.time[model.step];
    const span = view.to - view.from;
    if (time >= view.from && time <= view.to) return;
    move(time - span * (time < view.from ? 0.8 : 0.2), span);
    draw();
  }

  // --- moving -----------------------------------------------------------------------------------------------------

  function move(from, span) {
    const { start, end } = view.data;
    const room = (end - start) * 0.02 + 2;
    const wide = Math.min(Math.max(span, 20), end - start + 2 * room);
    view.from = Math.min(Math.max(from, start - room), end + room - wide);
    view.to = view.from + wide;
  }

  app.timeline = {
    view,
    zoom(factor, anchor) {
      const time = app.model.steps.time[app.model.step];
      const fixed = anchor !== undefined ? anchor : time > view.from && time < view.to ? time : (view.from + view.to) / 2;
      move(fixed - (fixed - view.from) * factor, (view.to - view.from) * factor);
      redraw();
    },
    pan(share) {
      move(view.from + share * (view.to - view.from), view.to - view.from);
      redraw();
    },
    fit() {
      move(view.data.start, Infinity);
      redraw();
    },
    draw,
    redraw,
    resize,
    // What other views draw above the bars, (context, view, x of a cycle), and say in the tooltip of a bar, in lines of text.
    layers: [],
    notes: [],
  };

  function barAt(px, py) {
    const index = view.rows.findIndex((row) => py >= row.y && py < row.y + row.height);
    if (index < 0) return null;
    const { first, start, end, category, text, texts, step, op } = view.data.bars;
    const time = timeAt(px);
    const row = view.rows[index];
    const near = 2 / scale();
    for (let i = firstVisible(index); i < first[index + 1] && start[i] <= time + near; i++) {
      if (end[i] + near >= time && start[i] <= time && (end[i] > time || i + 1 >= first[index + 1] || start[i + 1] > time)) {
        return { row, time, start: start[i], end: end[i], category: category[i], text: texts[text[i]], step: step[i], op: op[i] };
      }
    }
    return { row, time, step: -1 };
  }

  function tip(event) {
    const node = get("t-tip");
    const bar = barAt(event.offsetX, event.offsetY);
    node.hidden = !bar || bar.start === undefined;
    if (node.hidden) return;
    const what = [app.who(app.model, bar.row.rank, -1) || bar.row.label, view.data.styles[bar.category].words, bar.text];
    node.textContent = `${what.filter(Boolean).join(" ").replace(/ an mbarrier (\S+)$/, " $1")}\ncycles ${app.count(bar.start)} to ${app.count(bar.end)} (${app.count(bar.end - bar.start)})`;
    for (const notes of app.timeline.notes) for (const note of notes(bar)) node.textContent += `\n${note}`;
    const box = get("t-timeline").getBoundingClientRect();
    const below = event.clientY - box.top + 14;
    const above = below - node.offsetHeight - 24;
    node.style.left = `${Math.max(Math.min(event.clientX - box.left + 12, box.width - node.offsetWidth - 4), 4)}px`;
    node.style.top = `${below + node.offsetHeight > box.height && above > 0 ? above : below}px`;
  }

  function click(event) {
    const bar = barAt(event.offsetX, event.offsetY);
    const model = app.model;
    if (!bar) return app.goto(model.stepAt(timeAt(event.offsetX)));
    view.selected = bar.start === undefined ? null : bar;
    if (bar.row.identity !== undefined) app.pinBarrier(model.mbarriers.get(bar.row.identity));
    if (bar.row.rank < 0) return app.goto(bar.step >= 0 && bar.row.identity === undefined ? bar.step : model.stepAt(bar.time));
    app.selectWarp(bar.row.rank);
    const list = model.stepsOf.get(bar.row.rank);
    const at = app.lastAtMost(list, model.stepAt(bar.time));
    app.goto(at >= 0 ? list[at] : model.stepAt(bar.time));
  }

  function wire() {
    const plot = get("t-bars");
    let drag = null;
    plot.addEventListener("wheel", (e) => {
      e.preventDefault();
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) app.timeline.pan((e.deltaX || e.deltaY) / view.width);
      else app.timeline.zoom(Math.exp(e.deltaY * 0.002), timeAt(e.offsetX));
    }, { passive: false });
    plot.addEventListener("pointerdown", (e) => {
      plot.setPointerCapture(e.pointerId);
      drag = { x: e.clientX, from: view.from, moved: false };
    });
    plot.addEventListener("pointermove", (e) => {
      if (!drag) return tip(e);
      drag.moved = drag.moved || Math.abs(e.clientX - drag.x) > 3;
      if (!drag.moved) return;
      move(drag.from - (e.clientX - drag.x) / scale(), view.to - view.from);
      redraw();
    });
    plot.addEventListener("pointerup", (e) => {
      if (drag && !drag.moved) click(e);
      drag = null;
    });
    plot.addEventListener("pointerleave", () => (get("t-tip").hidden = true));
    new ResizeObserver(resize).observe(get("t-body"));
    wired = true;
  }

  app.views.push({
    build(model) {
      view.data = model.data.timeline;
      view.selected = null;
      layOut(view.data.lanes);
      labels(view.data.lanes);
      legend(view.data.styles);
      view.width = get("t-plot").clientWidth;
      move(view.data.start, Infinity);
      if (!wired) wire();
      resize();
    },
    update(model) {
      follow(model);
      overlay(model);
    },
  });
})();
