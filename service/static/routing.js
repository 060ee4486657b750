/** Routing by agreement: where in the picture each class finds support, iteration by iteration. */

import { ask, upload } from "./api.js";
import { make, pixels } from "./dom.js";

/** @returns {Promise<Node[]>} */
export async function drawRouting({ model, picture, target, portrait }, wanted) {
  const query = { model: model.name, target, detail: false };
  const routing = await ask("/routing", { query, body: upload(picture), wanted });
  const maps = routing.heat_maps.grid; // [iteration][class][row][column]
  const strongest = Math.max(...maps.flat(3).map(Math.abs)) || 1;
  const large = new HeatMap(model, portrait.input, strongest);
  const small = model.class_names.map(() => new HeatMap(model, portrait.input, strongest));
  const facts = routing.iterations.map((one, step) => row(step + 1, one, target));

  const last = routing.iterations.length - 1;

  function show(step) {
    large.paint(maps[step][target]);
    small.forEach((map, label) => map.paint(maps[step][label]));
    facts.forEach((row, place) => row.classList.toggle("now", place === step));
    slider.setAttribute("aria-valuetext", `${step + 1} of ${last + 1}`);
  }

  const slider = make("input", {
    type: "range",
    id: "iteration",
    min: 1,
    max: last + 1,
    step: 1,
    value: last + 1,
    oninput: () => show(Number(slider.value) - 1),
  });
  show(last);
  return [
    make("p", { class: "lead" }, "Where in the picture a class finds support for its length, and where opposition."),
    make(
      "div",
      { class: "routing" },
      make(
        "div",
        { class: "focus" },
        large.figure(`support for ${routing.class_name}`),
        make("label", { for: "iteration" }, "iteration"),
        slider,
        key(),
      ),
      make("div", {}, make("div", { class: "maps" }, ...small.map((map, k) => map.figure(model.class_names[k]))), table(facts)),
    ),
  ];
}

function table(rows) {
  const heads = ["iteration", "agreement", "length", "indecision"];
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
  constructor(model, input, strongest) {
    this.strongest = strongest;
    const count = model.primary_grid;
    const { primary_field_px: field, primary_stride_px: stride, image_size: size } = model;
    const share = (length) => `${((100 * length) / size).toFixed(3)}%`;
    this.cells = Array.from({ length: count * count }, () => make("span"));
    this.grid = make("div", { class: "heat", "aria-hidden": "true" }, ...this.cells);
    this.grid.style.setProperty("--count", String(count));
    this.grid.style.setProperty("--start", share((field - stride) / 2));
    this.grid.style.setProperty("--extent", share(stride * count));
    this.paper = make("div", { class: "paper" }, pixels(input), this.grid);
  }

  /** @param {number[][]} rows of support */
  paint(rows) {
    for (const [place, support] of rows.flat().entries()) {
      const cell = this.cells[place];
      cell.className = support > 0 ? "supports" : "opposes";
      cell.style.opacity = String(Math.sqrt(Math.abs(support) / this.strongest));
    }
  }

  figure(caption) {
    return make("figure", {}, this.paper, make("figcaption", {}, caption));
  }
}
