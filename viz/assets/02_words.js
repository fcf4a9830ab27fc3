// One sentence per step: who did what, in the words of the PTX manual.
(function () {
  "use strict";
  const app = window.h100sim;
  const count = app.count;

  app.tileAt = function (model, address) {
    const at = address % 16777216;
    const tile = model.data.shared_tile.tiles.find((t) => t.offset <= at && at < t.offset + t.rows * t.cols * t.element_bytes);
    return tile ? tile.name : `shared ${"0x" + at.toString(16)}`;
  };

  // "consumer 0" -> "C0", "producer" -> "P", "warpgroup 2" -> "W2".
  app.short = (role) => role.split(/\s+/).map((w) => (/^\d+$/.test(w) ? w : w[0].toUpperCase())).join("");

  // "consumer 0 w4"; a warp without a role of its own is called by its number alone.
  app.named = (warp) => (warp.role === `warp ${warp.rank}` ? warp.role : `${warp.role} w${warp.rank}`);

  app.who = function (model, rank, warp) {
    if (rank >= 0) return app.named(model.warps.get(rank));
    return rank === -2 ? `warp ${warp} of another CTA` : "";
  };

  const barrier = (model, identity) => (model.mbarriers.get(identity) || { name: "mbarrier of another CTA" }).name;

  const awaited = (model, e) => {
    const wait = model.data.controls.waits[e.a];
    if (wait === "mbarrier") return barrier(model, e.b);
    if (wait === "barrier") return `named barrier ${e.b}`;
    if (wait === "wgmma") return "its wgmma groups";
    if (wait === "bulk") return "its bulk groups";
    return wait;
  };

  const copy = (model, e) => `${model.data.controls.copies[e.a]} of ${count(e.b)} bytes, ${app.tileAt(model, e.c)}`;

  const SENTENCES = {
    ISSUED: (m, e) => {
      const late = e.a > 0 && e.b > 0 ? ` (${count(e.a)} cycles late: ${m.data.controls.causes[e.b]})` : "";
      return `issues ${m.data.controls.opcodes[e.pc] || "an instruction"}${late}`;
    },
    BLOCKED: (m, e) => `waits for ${awaited(m, e)}${m.data.controls.waits[e.a] === "mbarrier" ? `, parity ${e.c}` : ""}`,
    RESUMED: (m, e) => `goes on after ${count(e.c)} cycles of waiting for ${awaited(m, e)}`,
    EXITED: () => "exits",
    CTA_STARTED: (m, e) => `CTA starts on SM ${e.a}`,
    CTA_ENDED: () => "CTA ends",
    MBARRIER_INITIALISED: (m, e) => `initialises ${barrier(m, e.a)} with ${e.c} expected arrivals`,
    MBARRIER_INVALIDATED: (m, e) => `invalidates ${barrier(m, e.a)}`,
    MBARRIER_ARRIVED: (m, e) => `arrives at ${barrier(m, e.a)} phase ${e.d}: ${e.c} still pending`,
    MBARRIER_EXPECTED: (m, e) => `expects ${count(e.b)} bytes on ${barrier(m, e.a)} phase ${e.d}: tx-count ${count(e.c)}`,
    MBARRIER_COMPLETED_TX: (m, e) => `a copy completes ${count(e.b)} bytes on ${barrier(m, e.a)} phase ${e.d}: tx-count ${count(e.c)}`,
    MBARRIER_FLIPPED: (m, e) => `${barrier(m, e.a)} completes phase ${e.b}`,
    MBARRIER_WAITED: (m, e) =>
      `${e.c ? "sees" : "does not see"} ${barrier(m, e.a)}${e.c && e.d >= 0 ? ` phase ${e.d}` : ` parity ${e.b}`} complete`,
    MBARRIER_DROPPED: (m, e) => `drops ${e.b} arrivals of ${barrier(m, e.a)}: ${e.c} expected from now on`,
    BARRIER_ARRIVED: (m, e) => `arrives at named barrier ${e.a}: ${e.b} of ${e.c} threads`,
    BARRIER_RELEASED: (m, e) => `named barrier ${e.a} releases its warps`,
    BARRIER_SYNCED: (m, e) => `passes named barrier ${e.a}`,
    CLUSTER_ARRIVED: (m, e) => `arrives at the cluster barrier${e.c ? "" : " (relaxed)"}`,
    CLUSTER_WAITED: () => "passes the cluster barrier",
    TMA_ISSUED: (m, e) => `gives the TMA engine a ${copy(m, e)}`,
    TMA_BOX: (m, e) => `copy ${e.op}: ${e.c} rows of ${e.a} bytes, ${e.b} apart, swizzle ${e.d === 16 ? "none" : `${e.d}B`}`,
    TMA_STARTED: (m, e) => `TMA engine starts copy ${e.op}`,
    TMA_READ: (m, e) => `TMA engine has read the source of copy ${e.op}`,
    TMA_COMPLETED: (m, e) => `TMA engine completes a ${copy(m, e)}`,
    BULK_COMMITTED: (m, e) => `commits bulk group ${e.a}`,
    BULK_WAITED: (m, e) => (e.a < 0 ? "had no bulk group to wait for" : `bulk groups up to ${e.a} are ${e.b ? "read" : "complete"}`),
    TMA_GLOBAL: (m, e) => `copy ${e.op} covers ${count(e.c)} rows of ${count(e.b)} bytes in global memory`,
    WGMMA_ISSUED: (m, e) =>
      `issues wgmma ${e.op}: A ${e.a < 0 ? "in registers" : app.tileAt(m, e.a)}, B ${app.tileAt(m, e.b)}`,
    WGMMA_STARTED: (m, e) => `tensor core starts wgmma ${e.op}`,
    WGMMA_COMPLETED: (m, e) => `tensor core completes wgmma ${e.op}`,
    WGMMA_FENCED: () => "wgmma.fence: registers are ordered before the next wgmma",
    WGMMA_COMMITTED: (m, e) => `commits wgmma group ${e.a}`,
    WGMMA_WAITED: (m, e) => (e.a < 0 ? "had no wgmma group to wait for" : `wgmma groups up to ${e.a} are complete`),
    MEMORY: (m, e) =>
      `${e.d & 4 ? "updates" : e.d & 2 ? "writes" : "reads"} ${m.data.controls.spaces[e.c]} memory, ${e.b} bytes per lane`,
    FENCED: (m, e) => `fence: ${m.data.controls.fences[e.a]}`,
    BANK_CONFLICT: (m, e) => `bank conflict: ${e.a} wavefronts instead of ${e.b}`,
    REGISTERS_CHANGED: (m, e) => `has ${e.a} registers per thread from now on`,
    CLOCK_READ: () => "reads the clock",
    PRINTED: (m, e) => `prints: ${m.data.controls.texts[e.a] || ""}`,
  };

  app.eventAt = function (model, step) {
    const event = {};
    for (const name of Object.keys(model.steps)) event[name] = model.steps[name][step];
    event.name = model.data.controls.kinds[event.kind] || `event ${event.kind}`;
    return event;
  };

  // The sentence of a step without its cycle, such as "consumer 0 w4 waits for full[2], parity 0".
  app.sentence = function (model, step) {
    const event = app.eventAt(model, step);
    const words = SENTENCES[event.name] ? SENTENCES[event.name](model, event) : event.name.toLowerCase();
    const subject = app.who(model, event.rank, event.warp);
    // Completions carry the warp of the wgmma they finish, but it is the tensor core that acts.
    return subject && !/^(tensor core|TMA engine|CTA) /.test(words) ? `${subject} ${words}` : words;
  };

  app.placeAt = function (model, step) {
    const pc = model.steps.pc[step];
    return pc >= 0 ? model.data.controls.places[pc] || "" : "";
  };
})();
