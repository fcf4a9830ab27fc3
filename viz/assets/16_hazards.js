// The findings of the checks; a click leads to the step of an access.
(function () {
  "use strict";
  const app = window.h100sim;
  const get = (id) => document.getElementById(id);

  function access(entry, i) {
    const label = i ? "second access" : "first access";
    if (entry.event < 0) return app.element("span", { class: "access", title: entry.text }, `${label}: no event`);
    const elsewhere = entry.cta !== app.model.data.header.cta;
    const go = (e) => {
      e.preventDefault();
      if (elsewhere) app.open(entry.cta, 0, entry.event);
      else app.goto(entry.step);
    };
    return app.element("button", { class: "access", title: entry.text, onclick: go }, elsewhere ? `${label}, CTA ${entry.cta}` : label);
  }

  app.views.push({
    build(model) {
      const { hazards, checked, error } = model.data.hazards;
      get("z-count").textContent = hazards.length ? app.count(hazards.length) : "";
      const items = hazards.map((hazard) =>
        app.element(
          "details", {},
          app.element("summary", {}, app.element("b", {}, hazard.kind), " ", hazard.message, " ", ...hazard.accesses.map(access)),
          app.element("pre", {}, hazard.text)
        )
      );
      if (error) items.unshift(app.element("pre", { class: "error" }, error));
      if (!items.length) items.push(app.element("p", { class: "empty" }, checked ? "No hazards were found in this run." : "This trace comes without the findings of the checks."));
      get("z-list").replaceChildren(...items);
    },
    update() {},
  });
})();
