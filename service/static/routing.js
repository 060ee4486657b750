/** Routing: which places in the picture, or which capsules, support each class, iteration by iteration. */

import { recall, recallNumber, remember } from "./address.js";
import { ask, upload } from "./api.js";
import { explained, figureOf, make, pixels } from "./dom.js";
import { latest } from "./latest.js";

/** @returns {Promise<Node[]>} */
export async function drawRouting({ model, picture, target, input }, wanted) {
  const detail = model.layers.length > 1; // maps of hidden layers
  const query = { model: model.name, target, detail };
  const routing = await ask("/routing", { query, body: upload(picture), wanted });
  const layer = model.layers.at(-1);
  const everywhere = layer.rows * layer.columns === 1; // each capsule sees the whole picture
  const maps = routing.heat_maps[everywhere ? "types" : "grid"]; // [iteration][class][type], or [row][column]
  const strongest = Math.max(...maps.flat(3).map(Math.abs)) || 1;
  const map = () => supportMap(model, input, strongest);
  const last = routing.iterations.length - 1;
  const large = map();
  const small = model.class_names.map(map);
  const facts = routing.iterations.map((one, step) => row(step, one, target, last && model.family === "dynamic"));
  const hidden = routing.layers.map(hiddenLayer);

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
    table(facts, model.presence, routing.iterations[0]),
    make("p", { class: "quiet" }, explain(routing.iterations[0], everywhere)),
    ...hidden.map((layer) => layer.figure),
  ];
  return [
    make("p", { class: "lead" }, lead(everywhere, layer, model.presence)),
    explained("routing"),
    make(
      "div",
      { class: everywhere ? "routing everywhere" : "routing" },
      make("div", { class: "focus" }, large.figure(`support for ${routing.class_name}`), ...steps, key()),
      make("div", {}, ...overview),
    ),
    routingSwitch(model, picture),
  ];
}

function lead(everywhere, { types }, presence) {
  const voters = everywhere ? `Each of ${types} capsules sees the whole picture and` : "Each place in the picture";
  const shown = everywhere ? "Each cell of a map is one capsule, which supports the class or opposes it." : "A map shows which places support its class and which oppose it.";
  return `${voters} votes for the classes. Votes that agree raise the ${presence} of the class. ${shown}`;
}

function explain({ entropy }, everywhere) {
  const empty = everywhere ? "" : " Agreement can be small, because votes from empty places cancel out.";
  const agreement = `Agreement: how far the weighted votes point the same way, from −1 to 1.${empty}`;
  if (entropy === null) return agreement;
  return `${agreement} Entropy: how evenly capsules divide their votes among the classes, from 0 (all to one class) to 1 (evenly).`;
}

function table(rows, presence, { entropy }) {
  const heads = ["iteration", "agreement", presence, ...(entropy === null ? [] : ["entropy"])];
  const head = make("tr", {}, ...heads.map((name) => make("th", { scope: "col" }, name)));
  return make("table", { class: "facts" }, make("thead", {}, head), make("tbody", {}, ...rows));
}

function row(step, { agreement, lengths, entropy }, target, isUniform) {
  const values = [agreement[target], lengths[target], ...(entropy === null ? [] : [entropy])];
  const figures = values.map((value) => make("td", {}, value.toFixed(3)));
  const uniform = isUniform && step === 0 ? [make("span", {}, " (equal weights)")] : [];
  return make("tr", {}, make("th", { scope: "row" }, String(step + 1), ...uniform), ...figures);
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

/** The support for a class: of each capsule, or of each place over the picture, around the middle of what capsules see. */
function supportMap({ layers, width, height }, input, strongest) {
  const { types, rows, columns, field_px: field, stride_px: stride, offset_px: offset } = layers.at(-1);
  const everywhere = rows * columns === 1; // each capsule sees the whole picture
  const across = everywhere ? Math.ceil(Math.sqrt(types)) : columns;
  const { paper, grid, fill } = cells(everywhere ? types : rows * columns, across);
  if (everywhere) {
    paper.style.aspectRatio = `${across} / ${Math.ceil(types / across)}`;
  } else {
    const share = (length, whole) => `${((100 * length) / whole).toFixed(3)}%`;
    const start = offset + (field - stride) / 2;
    grid.style.inset = `${share(start, height)} auto auto ${share(start, width)}`;
    grid.style.width = share(stride * columns, width);
    grid.style.height = share(stride * rows, height);
    if (input) paper.prepend(pixels(input));
  }
  const opaque = everywhere ? 1 : 0.75; // the picture shows through
  const strength = (value) => opaque * Math.sqrt(Math.abs(value) / strongest);
  return {
    paint: (support) => fill(support, (value) => [value > 0 ? "supports" : "opposes", strength(value)]),
    figure: (caption) => make("figure", {}, paper, make("figcaption", {}, caption)),
  };
}

/** The activations of a layer of convolutional capsules: a small map for each of its types. */
function hiddenLayer({ name, iterations }) {
  const maps = iterations.map((one) => one.maps); // [iteration][type][row][column]
  const all = maps.flat(3);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const types = maps[0].map((map) => cells(map.flat().length, map[0].length));
  const words = `${name}: activations of its ${types.length} types, ${low.toFixed(2)} to ${high.toFixed(2)}; the stronger the colour, the higher.`;
  const papers = make("div", { class: "types", "aria-hidden": "true" }, ...types.map(({ paper }) => paper));
  const look = (activation) => ["active", (activation - low) / (high - low || 1)];
  return {
    paint: (step) => types.forEach(({ fill }, type) => fill(maps[step][type], look)),
    figure: make("figure", { class: "hidden-layer" }, papers, make("figcaption", {}, words)),
  };
}

/**
 * A grid of cells on paper. `fill` colours them: `look` gives a class of the style sheet and a strength of 0 to 1 for
 * each value, which may stand in rows.
 */
function cells(count, columns) {
  const spans = Array.from({ length: count }, () => make("span"));
  const grid = make("div", { class: "cells", "aria-hidden": "true" }, ...spans);
  grid.style.gridTemplateColumns = `repeat(${columns}, 1fr)`;
  const fill = (values, look) => values.flat().forEach((value, place) => {
    const [colour, strength] = look(value);
    spans[place].className = colour;
    spans[place].style.opacity = strength;
  });
  return { paper: make("div", { class: "paper" }, grid), grid, fill };
}

/** The answer, measured on whole test splits. */
const MEASURED = "/documentation/results.html#does-routing-matter";

/** A switch, and the service's figure of each kind of couplings while it is off. @returns {HTMLElement} */
export function routingSwitch(model, picture) {
  const box = make("input", { type: "checkbox", role: "switch", checked: recall("routing") !== "off" });
  const answer = make("div", { class: "switched", "aria-live": "polite" });
  const fill = latest(async (_, wanted) => {
    if (box.checked) return answer.replaceChildren();
    const query = { model: model.name };
    const drawing = await ask("/routing-off", { query, body: upload(picture), accept: "image/png", wanted });
    answer.replaceChildren(figureOf(drawing, "the answer with other couplings"));
  });
  box.addEventListener("change", () => {
    remember({ routing: box.checked ? null : "off" });
    fill();
  });
  fill();
  const measured = make("a", { href: MEASURED }, "Does routing matter?");
  const label = make("label", {}, box, " routing");
  return make("div", { class: "switch" }, label, make("p", { class: "quiet" }, measured), answer);
}
