// Where recordings come from (the server, or this very file), and the start of the page once its elements are there.
(function () {
  "use strict";
  const app = window.h100sim;
  const get = (id) => document.getElementById(id);

  const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

  async function asked(path) {
    const response = await fetch(path);
    if (!response.ok) throw new Error(await response.text());
    return response;
  }

  const server = {
    ctas: async () => (await asked("h100sim/ctas")).json(),
    recording: async (cta) => (await asked(`h100sim/recording/${cta}`)).arrayBuffer(),
    tile: async (cta, tile, step) => bytesOf((await (await asked(`h100sim/tile/${cta}/${tile}/${step}`)).json()).bytes),
  };

  // A file carries gzip blocks in base64, one element per CTA, and the tiles that fitted in.
  const file = (embedded) => ({
    ctas: async () => embedded.ctas,
    recording: async (cta) => {
      const node = get(`h-recording-${cta}`);
      if (!node) throw new Error(`this file holds no recording of CTA ${cta}`);
      const stream = new Blob([bytesOf(node.textContent.trim())]).stream().pipeThrough(new DecompressionStream("gzip"));
      return new Response(stream).arrayBuffer();
    },
    tile: async (cta, tile, step) => {
      const text = embedded.tiles[`${cta}/${tile}/${step}`];
      if (text === undefined) throw new Error("this file holds no memory for this step (the live view does)");
      return bytesOf(text);
    },
  });

  function message(words) {
    get("h-message").textContent = words;
    get("h-message").hidden = !words;
  }

  // Show a CTA at a step, or at an event of the trace where one is given.
  app.open = async function (cta, step, event) {
    try {
      message("Loading the recording ...");
      app.show(app.decode(await app.source.recording(cta)), step);
      if (event !== undefined) app.goto(app.model.steps.event.indexOf(event));
      message("");
    } catch (error) {
      message(`The recording of CTA ${cta} could not be shown: ${error.message}`);
    }
  };

  // "#cta=1&step=200": a link to a step; kept up to date without filling the history.
  function fromAddress() {
    const fields = new URLSearchParams(location.hash.slice(1));
    return { cta: Number(fields.get("cta") || app.ctas.cta[0]), step: fields.has("step") ? Number(fields.get("step")) - 1 : undefined };
  }

  let noting = null;
  app.views.push({
    build() {},
    update(model) {
      clearTimeout(noting);
      noting = setTimeout(() => {
        history.replaceState(null, "", `#cta=${model.data.header.cta}&step=${model.step + 1}`);
        const mirror = window.dash_clientside && window.dash_clientside.set_props;
        if (mirror) mirror("h-step", { data: { cta: model.data.header.cta, step: model.step, event: model.steps.event[model.step] } });
      }, 150);
    },
  });

  async function start() {
    const embedded = get("h-embedded");
    app.source = embedded ? file(JSON.parse(embedded.textContent)) : server;
    try {
      app.ctas = await app.source.ctas();
    } catch (error) {
      return message(`The server did not answer: ${error.message}`);
    }
    const { cta, step } = fromAddress();
    await app.open(cta, step);
  }

  // Dash puts the page in place some time after this file has been read.
  function whenThere() {
    if (get("h100sim")) return start();
    const observer = new MutationObserver(() => {
      if (!get("h100sim")) return;
      observer.disconnect();
      start();
    });
    observer.observe(document.documentElement, { childList: true, subtree: true });
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", whenThere);
  else whenThere();
})();
