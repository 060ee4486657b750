/** Routing: where in the picture each class finds support, iteration by iteration. */

import { recallNumber, remember } from "./address.js";
import { ask, upload } from "./api.js";
import { make, pixels } from "./dom.js";

/** @returns {Promise<Node[]>} */
export async function drawRouting({ model, picture, target, input }, wanted) {
  const detail = model.layers.length > 1; // maps of hidden layers
  const query = { model: model.name, target, detail };
  const routing = await ask("/routing", { query, body: upload(picture), wanted });
  const maps = routing.heat_maps.grid; // [iteration][class][row][column]
  const strongest = Math.max(...maps.flat(3).map(Math.abs)) || 1;
  const large = new HeatMap(model, input, strongest);
  const small = model.class_names.map(() => new HeatMap(model, input, strongest));
  const facts = routing.iterations.map((one, step) => row(step + 1, one, target));
  const hidden = routing.layers.map((layer) => new HiddenLayer(layer));
  const last = routing.iterations.length - 1;

  function show(step) {
    large.paint(maps[step][target]);
    small.forEach((map, label) => map.paint(maps[step][label]));
    hidden.forEach((layer) => layer.paint(step));
    facts.forEach((row, place) => row.classList.toggle("now", place === step));
    slider.setAttribute("aria-valuetext", `${step + 1} of ${last + 1}`);
  }

  const slider = make("input", {
    type: "range",
    id: "iteration",
    min: 1,
    max: last + 1,
    step: 1,
    value: recallNumber("iteration") || last + 1,
    oninput: () => {
      remember({ iteration: slider.value }, { replace: true });
      show(Number(slider.value) - 1);
    },
  });
  show(Number(slider.value) - 1);
  const steps = last ? [make("label", { for: "iteration" }, "iteration"), slider] : [];
  const overview = [
    make("div", { class: "maps" }, ...small.map((map, k) => map.figure(model.class_names[k]))),
    table(facts, model.presence),
    ...hidden.map((layer) => layer.figure),
  ];
  return [
    make("p", { class: "lead" }, "Each place in the picture votes for the classes; votes that agree get more weight. The map shows which places support the class and which oppose it."),
    make(
      "div",
      { class: "routing" },
      make("div", { class: "focus" }, large.figure(`support for ${routing.class_name}`), ...steps, key()),
      make("div", {}, ...overview),
    ),
  ];
}

function table(rows, presence) {
  const heads = ["iteration", "agreement", presence, "entropy"];
  const head = make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name)));
  return make("table", { class: "facts" }, make("thead", {}, head), make("tbody", {}, ...rows));
}

function row(step, { agreement, lengths, entropy }, target) {
  const figures = [agreement[target], lengths[target], entropy].map((value) => make("td", {}, value.toFixed(3)));
  return make("tr", {}, make("th", { scope: "row" }, String(step)), ...figures);
}

function key() {
  return make(
    "p",
    { class: "key quiet" },
    make("span", { class: "swatch supports" }),
    "supports",
    make("span", { class: "swatch opposes" }),
    "opposes",
  );
}

/** The picture with a grid of cells over it, each around the middle of what its capsules see. */
class HeatMap {
  constructor({ layers, width, height }, input, strongest) {
    this.strongest = strongest;
    const { rows, columns, field_px: field, stride_px: stride } = layers.at(-1);
    this.cells = Array.from({ length: rows * columns }, () => make("span"));
    this.grid = make("div", { class: "heat", "aria-hidden": "true" }, ...this.cells);
    const share = (length, whole) => `${((100 * length) / whole).toFixed(3)}%`;
    const start = (field - stride) / 2;
    Object.assign(this.grid.style, {
      left: share(start, width),
      top: share(start, height),
      width: share(stride * columns, width),
      height: share(stride * rows, height),
      gridTemplateColumns: `repeat(${columns}, 1fr)`,
    });
    this.paper = make("div", { class: "paper" }, ...(input ? [pixels(input)] : []), this.grid);
  }

  /** @param {number[][]} rows of support */
  paint(rows) {
    const most = this.cells.length > 1 ? 1 : 0.5; // one cell covers the whole picture
    for (const [place, support] of rows.flat().entries()) {
      const cell = this.cells[place];
      cell.className = support > 0 ? "supports" : "opposes";
      cell.style.opacity = String(most * Math.sqrt(Math.abs(support) / this.strongest));
    }
  }

  figure(caption) {
    return make("figure", {}, this.paper, make("figcaption", {}, caption));
  }
}

/** The activations of a layer of convolutional capsules: a small map for each of its types. */
class HiddenLayer {
  constructor({ name, iterations }) {
    this.maps = iterations.map((one) => one.maps); // [iteration][type][row][column]
    const all = this.maps.flat(3);
    [this.low, this.high] = [Math.min(...all), Math.max(...all)];
    const [rows, columns] = [this.maps[0][0].length, this.maps[0][0][0].length];
    this.canvases = this.maps[0].map(() => make("canvas", { class: "blocks", width: columns, height: rows }));
    const words = `${name}: activations of its ${this.canvases.length} types, ${this.low.toFixed(2)} to ${this.high.toFixed(2)}`;
    const types = make("div", { class: "types", "aria-hidden": "true" }, ...this.canvases);
    this.figure = make("figure", { class: "hidden-layer" }, types, make("figcaption", {}, words));
  }

  /** @param {number} step which iteration; the darker (by night, the lighter) the more active */
  paint(step) {
    const { color } = getComputedStyle(document.body);
    for (const [type, rows] of this.maps[step].entries()) {
      const { width, height } = this.canvases[type];
      const context = this.canvases[type].getContext("2d");
      context.clearRect(0, 0, width, height);
      context.fillStyle = color;
      for (const [place, activation] of rows.flat().entries()) {
        context.globalAlpha = (activation - this.low) / (this.high - this.low || 1);
        context.fillRect(place % width, Math.floor(place / width), 1, 1);
      }
    }
  }
}
