// Buttons, keys, the slider and the sentence of the current step.
(function () {
  "use strict";
  const app = window.h100sim;
  const get = (id) => document.getElementById(id);
  const KEYS = [
    ["j  →", "step forward"], ["k  ←", "step back"], ["Shift + j / k", "next or previous step of the selected warp"],
    ["]  [", "next or previous barrier flip"], ["space", "play or pause"], ["Home  End", "first or last step"],
    ["W S A D", "timeline: zoom in, zoom out, left, right"], ["0", "timeline: whole CTA"], ["c", "critical path on or off"], ["click a line", "source: next step there, Shift: previous"], ["?  Esc", "this list"],
  ];
  let timer = null;
  let wired = false;

  function play() {
    if (timer) {
      clearInterval(timer);
      timer = null;
    } else {
      timer = setInterval(() => {
        const step = app.model.next(1);
        if (step === app.model.step) play();
        else app.goto(step);
      }, 90);
    }
    get("c-play").textContent = timer ? "❚❚" : "▶▶";
  }

  const actions = {
    first: () => app.goto(0),
    back: () => app.goto(app.model.next(-1)),
    play,
    forward: () => app.goto(app.model.next(1)),
    last: () => app.goto(app.model.length - 1),
  };

  function onKey(event) {
    if (!app.model || event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
    const shifted = event.shiftKey ? "warp" : undefined;
    const action = {
      j: () => app.goto(app.model.next(1, shifted)), k: () => app.goto(app.model.next(-1, shifted)),
      arrowright: () => app.goto(app.model.next(1, shifted)), arrowleft: () => app.goto(app.model.next(-1, shifted)),
      "]": () => app.goto(app.model.next(1, "flip")), "[": () => app.goto(app.model.next(-1, "flip")),
      " ": play, home: actions.first, end: actions.last, "?": toggleHelp, escape: () => (get("c-help").hidden = true),
      w: () => app.timeline.zoom(0.7), s: () => app.timeline.zoom(1 / 0.7), a: () => app.timeline.pan(-0.15),
      d: () => app.timeline.pan(0.15), 0: () => app.timeline.fit(), c: () => app.criticalPath.toggle(),
    }[event.key.toLowerCase()];
    if (!action) return;
    // A focused button would take the space bar as a click as well.
    event.preventDefault();
    action();
  }

  function toggleHelp() {
    get("c-help").hidden = !get("c-help").hidden;
  }

  function scrubTo(event) {
    const box = get("c-scrub").getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    app.goto(Math.round(share * (app.model.length - 1)));
  }

  function wire() {
    for (const [name, action] of Object.entries(actions)) get("c-" + name).addEventListener("click", action);
    get("c-kind").addEventListener("change", (e) => (app.model.kind = e.target.value));
    get("c-warp").addEventListener("change", (e) => app.selectWarp(Number(e.target.value)));
    get("c-help-button").addEventListener("click", toggleHelp);
    get("c-help").append(
      app.element("table", {}, ...KEYS.map(([key, what]) => app.element("tr", {}, app.element("th", {}, key), app.element("td", {}, what))))
    );
    const scrub = get("c-scrub");
    scrub.addEventListener("pointerdown", (e) => {
      scrub.setPointerCapture(e.pointerId);
      scrubTo(e);
    });
    scrub.addEventListener("pointermove", (e) => e.buttons && scrubTo(e));
    document.addEventListener("keydown", onKey);
    wired = true;
  }

  app.selectWarp = function (rank) {
    app.model.rank = rank;
    get("c-warp").value = String(rank);
    app.refresh();
  };

  app.views.push({
    build(model) {
      if (!wired) wire();
      const options = model.data.controls.warps.map((w) => app.element("option", { value: w.rank }, w.role === `warp ${w.rank}` ? w.role : `w${w.rank} ${w.role}`));
      get("c-warp").replaceChildren(...options);
      get("c-warp").value = String(model.rank);
      model.kind = get("c-kind").value || "event";
    },
    update(model) {
      const { step, length } = model;
      const start = model.data.header.start;
      const cycle = model.steps.time[step];
      get("c-position").textContent = `step ${app.count(step + 1)} of ${app.count(length)}, cycle ${app.count(cycle)}`;
      get("c-position").title = `${app.count(cycle - start)} cycles after the CTA started`;
      const place = app.placeAt(model, step);
      get("c-sentence").textContent = app.sentence(model, step) + (place ? `  (${place})` : "");
      const share = length > 1 ? step / (length - 1) : 0;
      get("c-scrub-done").style.transform = `scaleX(${share})`;
      get("c-scrub-thumb").style.left = `${100 * share}%`;
    },
  });
})();
