// The facts of the run and the selector of CTAs.
(function () {
  "use strict";
  const app = window.h100sim;
  const get = (id) => document.getElementById(id);
  const dims = (d) => (d[1] === 1 && d[2] === 1 ? d[0] : d.join("×"));
  let listening = false;

  function facts(d) {
    const microseconds = ((d.cycles / d.clock_mhz) || 0).toFixed(2);
    return [
      ["kernel", d.kernel], ["grid", dims(d.grid)], ["block", dims(d.block)],
      ...(dims(d.cluster) === 1 ? [] : [["cluster", dims(d.cluster)]]),
      ["device", d.device], ["duration", `${app.count(d.cycles)} cycles (${microseconds} µs at ${app.count(d.clock_mhz)} MHz)`],
    ];
  }

  function verdict(d) {
    const node = get("h-verdict");
    const found = d.hazards < 0 ? "not checked" : d.hazards ? `${d.hazards} hazard${d.hazards > 1 ? "s" : ""}` : "no hazards";
    node.textContent = d.error ? d.error.split("\n")[0] : found;
    node.className = d.error || d.hazards > 0 ? "bad" : d.hazards < 0 ? "unknown" : "good";
    node.title = d.error;
  }

  app.views.push({
    build(model) {
      const d = model.data.header;
      get("h-facts").replaceChildren(
        ...facts(d).map(([name, value]) => app.element("span", { class: "fact" }, app.element("i", {}, name), " ", String(value)))
      );
      verdict(d);
      const note = get("h-note");
      note.textContent = d.note.split("\n")[0];
      note.title = d.note;
      note.hidden = !d.note;
      const select = get("h-cta");
      select.replaceChildren(
        ...app.ctas.cta.map((cta, i) => app.element("option", { value: cta }, `${cta} on SM ${app.ctas.sm[i]}`))
      );
      select.value = String(d.cta);
      if (!listening) select.addEventListener("change", () => app.open(Number(select.value), 0));
      listening = true;
    },
    update() {},
  });
})();
