// A shared tile twice: as stored (rows of 128 bytes over 32 banks) and as seen (rows and columns of the matrix).
(function () {
  "use strict";
  const app = window.h100sim;
  const get = (id) => document.getElementById(id);
  const ROW_BYTES = 128;
  const CHUNKS = ["#88ccee", "#ddcc77", "#cc6677", "#117733", "#332288", "#aa4499", "#44aa99", "#999933"];
  const FOLLOW = "follow";
  const TOUCHED = 0xff00d4ff;
  const state = { tile: null, version: null, bytes: null, key: "", access: null };
  const cache = new Map();
  let wired = false;

  // --- decoding ---------------------------------------------------------------------------------------------------

  const float32 = (bits) => {
    const view = new DataView(new ArrayBuffer(4));
    view.setUint32(0, bits);
    return view.getFloat32(0);
  };

  function small(bits, exponentBits, mantissaBits, hasInfinity) {
    const mantissa = bits & ((1 << mantissaBits) - 1);
    const exponent = (bits >> mantissaBits) & ((1 << exponentBits) - 1);
    const sign = bits >> (exponentBits + mantissaBits) ? -1 : 1;
    const bias = (1 << (exponentBits - 1)) - 1;
    const top = (1 << exponentBits) - 1;
    if (exponent === top && hasInfinity) return mantissa ? NaN : sign * Infinity;
    if (exponent === top && !hasInfinity && mantissa === (1 << mantissaBits) - 1) return NaN;
    const scale = Math.pow(2, (exponent || 1) - bias - mantissaBits);
    return sign * (mantissa + (exponent ? 1 << mantissaBits : 0)) * scale;
  }

  const DECODE = {
    bf16: (v, i) => float32(v.getUint16(i, true) << 16), f16: (v, i) => small(v.getUint16(i, true), 5, 10, true),
    f32: (v, i) => v.getFloat32(i, true), tf32: (v, i) => v.getFloat32(i, true),
    e4m3: (v, i) => small(v.getUint8(i), 4, 3, false), e5m2: (v, i) => small(v.getUint8(i), 5, 2, true),
    s8: (v, i) => v.getInt8(i), u8: (v, i) => v.getUint8(i), s16: (v, i) => v.getInt16(i, true),
    u16: (v, i) => v.getUint16(i, true), s32: (v, i) => v.getInt32(i, true), u32: (v, i) => v.getUint32(i, true),
  };
  app.decodeElement = (dtype, view, offset) => DECODE[dtype](view, offset);

  // --- geometry: element index <-> cell of a picture --------------------------------------------------------------

  function geometry(tile) {
    const offsets = app.model.data.shared_tile.layouts[tile.layout];
    const first = tile.offset - (tile.offset % ROW_BYTES);
    const perRow = ROW_BYTES / tile.element_bytes;
    const stored = new Int32Array(offsets.length);
    for (let i = 0; i < offsets.length; i++) stored[i] = (tile.offset - first + offsets[i]) / tile.element_bytes;
    const storedRows = Math.ceil((tile.offset - first + tile.rows * tile.cols * tile.element_bytes) / ROW_BYTES);
    const elementAt = new Int32Array(storedRows * perRow).fill(-1);
    for (let i = 0; i < stored.length; i++) elementAt[stored[i]] = i;
    return { offsets, first, perRow, stored, storedRows, elementAt };
  }

  function paint(canvas, cols, rows, elementOf, colours, width) {
    const cell = Math.min(12, Math.max(1, width / cols));
    canvas.width = cols;
    canvas.height = rows;
    canvas.style.width = `${cols * cell}px`;
    canvas.style.height = `${rows * Math.max(cell, 2)}px`;
    const ctx = canvas.getContext("2d");
    const image = ctx.createImageData(cols, rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < pixels.length; i++) {
      const element = elementOf(i);
      pixels[i] = element < 0 ? 0xffffffff : colours[element];
    }
    ctx.putImageData(image, 0, 0);
  }

  // --- colours ----------------------------------------------------------------------------------------------------

  const pack = (r, g, b) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  const mix = (from, to, share) => from.map((c, i) => Math.round(c + (to[i] - c) * share));

  function valueColours(values) {
    // Memory that nobody has written yet may hold huge values: the scale follows the smaller ones.
    const sizes = values.filter((v) => Number.isFinite(v) && v !== 0).map(Math.abs).sort();
    const limit = sizes.length ? Math.min(sizes[sizes.length - 1], 8 * sizes[Math.floor(0.4 * sizes.length)]) : 0;
    return Uint32Array.from(values, (v) => {
      if (!Number.isFinite(v)) return pack(200, 0, 200);
      const share = limit ? Math.sqrt(Math.min(Math.abs(v) / limit, 1)) : 0;
      return pack(...mix([247, 247, 247], v < 0 ? [178, 80, 0] : [0, 80, 160], share));
    });
  }

  // The 16-byte chunk that holds an element in the matrix's own order: the picture of the swizzle itself.
  function chunkColours(tile, size) {
    const perChunk = 16 / tile.element_bytes;
    const packed = CHUNKS.map((hex) => pack(...[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16))));
    const colours = new Uint32Array(size);
    for (let i = 0; i < size; i++) colours[i] = packed[Math.floor((i % tile.cols) / perChunk) % 8];
    return colours;
  }

  // --- drawing ----------------------------------------------------------------------------------------------------

  function draw() {
    const { tile, bytes } = state;
    if (!tile) return;
    for (const frame of document.querySelectorAll("#m-pictures .spot")) frame.hidden = true;
    get("m-hover").textContent = "point at an element for its address, bank, chunk and value";
    const g = (state.geometry = geometry(tile));
    const size = tile.rows * tile.cols;
    state.values = null;
    if (bytes) {
      const view = new DataView(bytes.buffer);
      state.values = Float64Array.from(g.offsets, (offset) => DECODE[tile.dtype](view, offset));
    }
    const byChunk = get("m-colour").value === "chunk" || !state.values;
    const colours = byChunk ? chunkColours(tile, size) : valueColours(state.values);
    highlight(tile, g, colours);
    const width = Math.max(64, Math.floor((get("m-pictures").clientWidth - 30) / (tile.is_region ? 1 : 2)) - 4);
    paint(get("m-stored"), g.perRow, g.storedRows, (i) => g.elementAt[i], colours, width);
    get("m-stored-title").textContent = "as stored: 128 B rows, 32 banks";
    const seen = get("m-seen").closest(".picture");
    seen.hidden = tile.is_region;
    if (tile.is_region) return;
    paint(get("m-seen"), tile.cols, tile.rows, (i) => i, colours, width);
    const swizzle = tile.swizzle ? `${tile.swizzle} B swizzle` : "no swizzle";
    get("m-seen-title").textContent = `as seen: ${tile.rows}×${tile.cols} ${tile.dtype}, ${swizzle}`;
  }

  function note(words) {
    get("m-note").textContent = words;
    get("m-note").hidden = !words;
  }

  function hover(event, isStored) {
    const { tile, geometry: g } = state;
    const canvas = event.target;
    const col = Math.floor((event.offsetX / canvas.clientWidth) * canvas.width);
    const row = Math.floor((event.offsetY / canvas.clientHeight) * canvas.height);
    const index = row * canvas.width + col;
    const element = isStored ? g.elementAt[index] : index;
    if (element === undefined || element < 0 || element >= g.offsets.length) return;
    const address = tile.offset + g.offsets[element];
    const value = state.values ? ` = ${Number(state.values[element].toPrecision(6))}` : "";
    const where = tile.is_region ? "" : `(${Math.floor(element / tile.cols)}, ${element % tile.cols})${value}, `;
    get("m-hover").textContent =
      `${tile.name} ${where}byte address 0x${address.toString(16)}, bank ${(address >> 2) & 31}, ` +
      `16-byte chunk ${(address >> 4) & 7} of row ${Math.floor((address - g.first) / ROW_BYTES)}${tile.is_region ? value : ""}`;
    spot(get("m-stored"), g.stored[element]);
    if (!tile.is_region) spot(get("m-seen"), element);
  }

  // Frame one element in a picture, so that a pointer over one picture shows the same element in the other.
  function spot(canvas, index) {
    const frame = canvas.parentElement.querySelector(".spot");
    const [width, height] = [canvas.clientWidth / canvas.width, canvas.clientHeight / canvas.height];
    const [row, col] = [Math.floor(index / canvas.width), index % canvas.width];
    frame.hidden = false;
    Object.assign(frame.style, {
      left: `${col * width - 2}px`, top: `${row * height - 2}px`, width: `${width + 6}px`, height: `${height + 6}px`,
    });
  }

  // --- what the lanes of the step touch ---------------------------------------------------------------------------

  // Byte ranges that the current step's lanes touch: [offsets of the lanes, bytes per lane], null if it is no such step.
  function accessAt(model, step) {
    const { step: steps, offset } = model.data.shared_tile.accesses;
    const at = app.lastAtMost(steps, step);
    if (at < 0 || steps[at] !== step) return null;
    return { offsets: offset.subarray(32 * at, 32 * at + 32), width: model.steps.b[step] };
  }

  const inTile = (tile, offset) => offset >= tile.offset && offset < tile.offset + tile.rows * tile.cols * tile.element_bytes;

  function highlight(tile, g, colours) {
    if (!state.access) return;
    for (const offset of state.access.offsets) {
      for (let byte = offset; offset >= 0 && byte < offset + state.access.width; byte += tile.element_bytes) {
        if (inTile(tile, byte)) colours[g.elementAt[Math.floor((byte - g.first) / tile.element_bytes)]] = TOUCHED;
      }
    }
  }

  // The machine reports an access that needs more wavefronts than its words do; silence means no conflict.
  function conflict(model) {
    const { kind, rank, pc, a, b } = model.steps;
    const { step } = model;
    for (let i = Math.max(step - 3, 0); i < Math.min(step + 4, model.length); i++) {
      if (kind[i] === model.kinds.BANK_CONFLICT && rank[i] === rank[step] && pc[i] === pc[step]) {
        return `bank conflict, ${a[i]} wavefronts instead of ${b[i]}`;
      }
    }
    return "no bank conflict";
  }

  function accessWords(model) {
    if (!state.access) return "";
    const lanes = state.access.offsets.filter((o) => o >= 0).length;
    return `This step touches ${lanes} × ${state.access.width} bytes (yellow): ${conflict(model)}.`;
  }

  // --- following the step -----------------------------------------------------------------------------------------

  const versionAt = (tile, step) => {
    const at = app.lastAtMost(tile.versions, step);
    return at < 0 ? -1 : tile.versions[at];
  };

  // The chosen tile, or the one that changed last (before any change: the first).
  function chosen(model) {
    const { tiles } = model.data.shared_tile;
    const choice = get("m-tile").value;
    if (choice !== FOLLOW) return tiles[Number(choice)] || null;
    const first = state.access ? state.access.offsets.find((o) => o >= 0) : -1;
    const touched = first >= 0 && tiles.find((tile) => inTile(tile, first));
    if (touched) return touched;
    let best = tiles[0] || null;
    for (const tile of tiles) if (versionAt(tile, model.step) > versionAt(best, model.step)) best = tile;
    return best;
  }

  function show(tile, version, bytes, words) {
    state.tile = tile;
    state.version = version;
    state.bytes = bytes;
    note(words);
    draw();
  }

  function fetchBytes(model, tile, version, key) {
    const index = model.data.shared_tile.tiles.indexOf(tile);
    app.source.tile(model.data.header.cta, index, version).then(
      (bytes) => {
        cache.set(key, bytes);
        if (key === state.key) show(tile, version, bytes, describe(model, tile, version));
      },
      (error) => key === state.key && show(tile, version, null, `The memory after this step could not be had: ${error.message}`)
    );
  }

  function describe(model, tile, version) {
    const since = `${tile.name} since cycle ${app.count(model.steps.time[version])}: ${app.sentence(model, version)}`;
    return accessWords(model) || since;
  }

  app.views.push({
    build(model) {
      const { tiles } = model.data.shared_tile;
      get("m-tile").replaceChildren(
        app.element("option", { value: FOLLOW }, "last changed"),
        ...tiles.map((tile, i) => app.element("option", { value: i }, tile.name))
      );
      cache.clear();
      state.key = "";
      state.tile = null;
      if (!wired) {
        get("m-tile").addEventListener("change", app.refresh);
        get("m-colour").addEventListener("change", draw);
        get("m-stored").addEventListener("pointermove", (e) => hover(e, true));
        get("m-seen").addEventListener("pointermove", (e) => hover(e, false));
      }
      wired = true;
    },
    update(model) {
      const before = state.access;
      state.access = accessAt(model, model.step);
      const tile = chosen(model);
      get("m-pictures").hidden = !tile;
      if (!tile) return note("This CTA has no shared tile that the kernel names or a bulk copy uses.");
      const version = versionAt(tile, model.step);
      const key = `${model.data.header.cta}/${tile.name}/${version}`;
      if (key === state.key && !before && !state.access) return;
      state.key = key;
      if (!model.data.shared_tile.has_memory) return show(tile, version, null, "This trace carries no memory: the picture shows the layout only.");
      if (version < 0) return show(tile, version, null, `${tile.name} has not been written yet: the picture shows the layout only.`);
      if (cache.has(key)) return show(tile, version, cache.get(key), describe(model, tile, version));
      note(`Re-executing up to cycle ${app.count(model.steps.time[version])} ...`);
      fetchBytes(model, tile, version, key);
    },
  });

  app.sharedTile = state;
})();
