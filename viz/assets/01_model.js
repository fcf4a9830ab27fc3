// The recording in the browser: columns without copies, the current step, and the questions that views ask about it.
// All stepping happens here; the server is asked only for another CTA or for the bytes of a shared tile.
(function () {
  "use strict";
  const app = (window.h100sim = window.h100sim || {});
  const TYPES = {
    u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array,
  };

  // Decode a block written by viz/wire.py.
  app.decode = function (buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    const start = 4 + length;
    return JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)), (_, node) => {
      if (node && typeof node === "object" && Array.isArray(node.column)) {
        const [offset, count, type] = node.column;
        return new TYPES[type](buffer, start + offset, count);
      }
      return node;
    });
  };

  // Index of the last element of an ascending array that is <= value, -1 if none.
  app.lastAtMost = function (array, value) {
    let low = 0;
    let high = array.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (array[middle] <= value) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };

  app.element = function (tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "class") node.className = value;
      else if (name === "style") Object.assign(node.style, value);
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  };

  app.count = (n) => Math.round(n).toLocaleString("en-US");

  class Model {
    constructor(data) {
      this.data = data;
      this.steps = data.controls.steps;
      this.length = this.steps.event.length;
      this.step = 0;
      this.kind = "event";
      this.rank = data.controls.warps.length ? data.controls.warps[0].rank : -1;
      this.warps = new Map(data.controls.warps.map((w) => [w.rank, w]));
      this.kinds = Object.fromEntries(Object.entries(data.controls.kinds).map(([number, name]) => [name, Number(number)]));
      this.mbarriers = new Map(data.barriers.mbarriers.map((m) => [m.identity, m]));
      this._index();
    }

    // Lists of steps per warp, of flips and of instructions; one pass over the columns.
    _index() {
      const { kind, rank } = this.steps;
      const { MBARRIER_FLIPPED, ISSUED, BLOCKED, EXITED } = this.kinds;
      const perWarp = new Map([...this.warps.keys()].map((r) => [r, []]));
      const flips = [];
      const instructions = [];
      this.exitOf = new Map();
      for (let i = 0; i < this.length; i++) {
        if (rank[i] >= 0) perWarp.get(rank[i]).push(i);
        if (kind[i] === MBARRIER_FLIPPED) flips.push(i);
        else if (kind[i] === ISSUED || kind[i] === BLOCKED) instructions.push(i);
        else if (kind[i] === EXITED) this.exitOf.set(rank[i], i);
      }
      this.stepsOf = new Map([...perWarp].map(([r, list]) => [r, Int32Array.from(list)]));
      this.flips = Int32Array.from(flips);
      this.instructions = Int32Array.from(instructions);
    }

    stepsOfKind(kind) {
      if (kind === "flip") return this.flips;
      if (kind === "instruction") return this.instructions;
      if (kind === "warp") return this.stepsOf.get(this.rank) || new Int32Array(0);
      return null;
    }

    // The step reached by moving by `count` steps of a kind (default: the chosen kind); the ends hold.
    next(count, kind) {
      const list = this.stepsOfKind(kind || this.kind);
      if (!list) return Math.min(Math.max(this.step + count, 0), this.length - 1);
      if (!list.length) return this.step;
      const at = app.lastAtMost(list, this.step);
      const here = at >= 0 && list[at] === this.step;
      const target = count > 0 ? at + count : at + count + (here ? 0 : 1);
      if (target < 0) return count < 0 ? this.step : list[0];
      return list[Math.min(target, list.length - 1)] < this.step && count > 0 ? this.step : list[Math.min(target, list.length - 1)];
    }

    // The last step of a warp at or before a step; -1 before its first, null after its exit.
    position(rank, step) {
      const exit = this.exitOf.get(rank);
      if (exit !== undefined && exit <= step) return null;
      const list = this.stepsOf.get(rank);
      const at = app.lastAtMost(list, step);
      return at < 0 ? -1 : list[at];
    }

    // The last step at or before a cycle.
    stepAt(time) {
      return Math.max(0, app.lastAtMost(this.steps.time, time));
    }

    // State of an mbarrier after a step, null before its init.
    mbarrierAt(mbarrier, step) {
      const at = app.lastAtMost(mbarrier.step, step);
      if (at < 0) return null;
      return { at, phase: mbarrier.phase[at], pending: mbarrier.pending[at], expected: mbarrier.expected[at], tx: mbarrier.tx[at] };
    }

    // Ranks of the warps that wait at a step.
    waiting(waits, step) {
      const ranks = [];
      for (let i = 0; i < waits.from.length; i++) {
        if (waits.from[i] <= step && (waits.to[i] < 0 || step < waits.to[i])) ranks.push(waits.rank[i]);
      }
      return ranks.sort((a, b) => a - b);
    }
  }

  app.views = [];
  app.model = null;

  // Make a decoded recording the current one and let every view build itself.
  app.show = function (data, step) {
    app.model = new Model(data);
    for (const view of app.views) view.build(app.model);
    // What stopped a run is best seen at its end.
    app.goto(step !== undefined ? step : data.header.error ? app.model.length - 1 : 0);
  };

  let scheduled = false;
  // Move to a step; views follow in the next frame, so that held keys never queue work.
  app.goto = function (step) {
    const model = app.model;
    if (!model) return;
    model.step = Math.min(Math.max(step, 0), model.length - 1);
    app.refresh();
  };

  app.refresh = function () {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      for (const view of app.views) view.update(app.model);
    });
  };
})();
