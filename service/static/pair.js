/** The second tab: two digits laid over one another, and separated in colour. */

import { recall, recallNumber, remember } from "./address.js";
import { ask, upload } from "./api.js";
import { explained, make, pixels, show } from "./dom.js";
import { latest } from "./latest.js";
import { directionsOf, share } from "./models.js";
import { calm, complain } from "./notice.js";
import { Pad } from "./pad.js";
import { amount, reach } from "./pose.js";
import { routingSwitch } from "./routing.js";
import { DIGITS } from "./samples.js";

const OPENING = ["mnist-3", "mnist-5"];
const TITLES = ["First digit", "Second digit"];
const ORDINALS = ["first", "second"];
/** The directions that each digit can be moved along. */
const SLIDERS = 3;

/**
 * @param {HTMLElement} panel
 * @param {Promise<{pair: any[], digit: any[]}>} models the networks for pairs, and those for single digits, of which
 *   one reads each pad alone
 * @returns {{pads: Pad[], restorePair: () => void, showPair: () => void}} `showPair` is called when the panel is seen
 */
export function pairPads(panel, models) {
  const places = TITLES.map((title) => titled(title, make("div")));
  const pads = places.map((place, index) => new Pad(place.lastChild, TITLES[index]));
  const [right, down] = [distance("right", "second digit, moved right"), distance("down", "second digit, moved down")];
  const told = () => ({ first: pads[0].source, second: pads[1].source, right: right.input.value, down: down.input.value });
  const image = make("img", { class: "pixels", alt: "", hidden: true });
  const hint = make("p", { class: "hint" }, "needs two digits");
  const result = make("div", { class: "apart", "aria-live": "polite" });
  const routing = make("div");
  const variance = make("p", { class: "lead quiet" });
  const message = make("p", { class: "lead" }, "Two overlapping digits: which strokes belong to which digit?");

  const segment = latest(async (_, wanted) => {
    const { pair: [model], digit } = (await models) ?? { pair: [], digit: [] };
    hint.hidden = !pads.some((pad) => pad.empty);
    if (!model || !hint.hidden) return clear();
    try {
      await takeApart(model, readerFor(model, digit), wanted);
    } catch (error) {
      clear();
      throw error;
    }
  }, panel);

  async function takeApart(model, reader, wanted) {
    const query = { dx: right.input.value, dy: down.input.value };
    const pictures = await Promise.all(pads.map((pad) => pad.picture()));
    const overlay = await ask("/overlay", { query, body: upload(...pictures), accept: "image/png", wanted });
    URL.revokeObjectURL(image.src);
    show(image, URL.createObjectURL(overlay), "both digits in one picture");
    const describes = model.directions.length > 0;
    const [answer, alone, described] = await Promise.all([
      ask("/segment", { query: { model: model.name }, body: upload(overlay), wanted }),
      reader ? ask("/classify", { query: { model: reader.name }, body: upload(...pictures), wanted }) : { predictions: [] },
      describes && ask("/describe", { query: { model: model.name }, body: upload(overlay), wanted }),
    ]);
    calm();
    const names = alone.predictions.map((one) => one.class_name);
    const twice = names.length && names[0] === names[1] ? [make("p", { class: "lead finding" }, sameTwice(names[0]))] : [];
    const found = await apart(inOrder(answer, names), names, (segment, place, canvas) => sliders(model, overlay, described, { segment, place, canvas }));
    const sentence = described ? [make("p", { class: "lead told" }, described.sentence)] : [];
    result.replaceChildren(...twice, ...sentence, ...found);
    routing.replaceChildren(routingSwitch(model, overlay));
  }

  function clear() {
    URL.revokeObjectURL(image.src);
    show(image, null);
    result.replaceChildren();
    routing.replaceChildren();
  }

  let due = false;
  const update = () => {
    due = panel.hidden;
    if (!due) segment();
  };
  const showPair = () => due && update();
  async function restorePair() {
    if (!(await models)?.pair.length) return;
    const before = JSON.stringify(told());
    for (const one of [right, down]) one.put(recallNumber(one.input.id));
    try {
      const held = await Promise.all(ORDINALS.map((name, place) => pads[place].restore(recall(name), OPENING[place])));
      if (held.every(Boolean) && JSON.stringify(told()) !== before) update();
    } catch (error) {
      complain(error);
    }
  }

  for (const pad of pads) {
    pad.addEventListener("change", () => {
      remember(told());
      update();
    });
  }
  for (const { input } of [right, down]) {
    input.addEventListener("input", () => {
      remember(told(), { replace: true });
      update();
    });
  }
  const both = titled("Both digits", make("div", { class: "paper" }, image, hint), right.row, down.row);
  const parts = make("div", { class: "pair-parts" }, make("div", { class: "story pair" }, ...places, both), result);
  panel.append(message, parts, routing, explained("segment"), variance);
  models.then((found) => {
    if (!found?.pair.length) return;
    for (const pad of pads) pad.offer(DIGITS);
    message.append(` ${found.pair[0].name} separates two different digits.`);
    variance.textContent = share(found.pair[0]);
  });
  restorePair();
  return { pads, restorePair, showPair };
}

function titled(title, ...children) {
  return make("section", { class: "side" }, make("h2", {}, title), ...children);
}

function distance(id, name) {
  const input = make("input", { type: "range", id, min: -8, max: 8, step: 1 });
  const value = make("output", { for: id });
  const say = () => {
    value.textContent = `${input.value} px`.replace("-", "−");
  };
  const put = (distance) => {
    input.value = Number.isNaN(distance) ? 4 : distance;
    say();
  };
  input.addEventListener("input", say);
  return { input, put, row: make("div", { class: "slider" }, make("label", { for: id }, name), value, input) };
}

/** A network for single digits that knows the classes of the one for pairs; the default one if it can. */
function readerFor(model, singles) {
  const able = singles.filter((one) => `${one.class_names}` === `${model.class_names}`);
  return able.find((one) => one.default) ?? able[0];
}

/** The answer with the digits in the order of the pads, as far as they are what the pads show alone. */
function inOrder(answer, names) {
  const [one, other] = answer.segments;
  const swapped = other && (one.class_name === names[1] || other.class_name === names[0]) && names[0] !== names[1];
  return { ...answer, segments: swapped ? [other, one] : answer.segments };
}

function sameTwice(name) {
  return `Both pictures show the class ${name}, but the network has one capsule for it. The network cannot find the same digit twice: the other result is its next best class, which may explain the strokes well and still be wrong.`;
}

/** Sliders that move the pose of one of the digits: its picture follows, and the value that is measured on it. */
function sliders(model, overlay, described, { segment, place, canvas }) {
  const readings = [described, described.second].find((one) => one?.label === segment.label)?.readings ?? [];
  const rows = directionsOf(model, segment.label).slice(0, SLIDERS).map((one) => {
    const id = `${ORDINALS[place]}-${one.name}`;
    const value = make("output", { for: id });
    const [down, up] = reach(one, readings.find(({ name }) => name === one.name)?.value ?? one.quantiles[one.quantiles.length >> 1]);
    const input = make("input", { type: "range", id, min: -down, max: up, step: 0.04, value: 0 });
    const draw = latest(async (_, wanted) => {
      const query = { model: model.name, target: segment.label, direction: one.name, delta: input.value * one.std };
      const { perturbed, value: told } = await ask("/perturb", { query, body: upload(overlay), wanted });
      const drawn = told.measured === null ? "" : `, drawn ${amount(told.measured)}`;
      value.textContent = `${amount(told.asked)}${drawn} ${one.unit}`.trim();
      canvas.getContext("2d").drawImage(await paint([perturbed], place), 0, 0);
    });
    input.addEventListener("input", () => {
      for (const other of rows) if (other.input !== input) other.input.value = "0";
      draw();
    });
    return { input, element: make("div", { class: "slider" }, make("label", { for: id }, one.name), value, input) };
  });
  return rows.map(({ element }) => element);
}

async function apart({ segments, explained_ink: covered }, names, move) {
  const pictures = await Promise.all(segments.map((one, place) => paint([one.reconstruction], place)));
  const both = await paint(segments.map((one) => one.reconstruction), 0);
  both.setAttribute("aria-label", "both digits, each in its colour");
  const facts = `The two digits cover ${Math.round(100 * covered)} % of the strokes. A stroke that belongs to both counts for each.`;
  return [
    figure(both, "separated", [facts]),
    ...segments.map((one, place) => {
      pictures[place].setAttribute("aria-label", `the ${one.class_name}, reconstructed`);
      const found = names[place] === one.class_name ? [`the ${ORDINALS[place]} digit`] : names.length ? ["found in neither picture alone"] : [];
      const shares = [`length ${one.length.toFixed(2)}`, `${Math.round(100 * one.ink_share)} % of the strokes`];
      const moved = make("div", { class: "sliders" }, ...move(one, place, pictures[place]));
      return figure(pictures[place], make("strong", {}, one.class_name), [...found, ...shares], { ...one, moved });
    }),
  ];
}

function figure(canvas, title, facts, segment) {
  const lines = facts.map((fact) => make("span", { class: "quiet" }, fact));
  const mask = segment
    ? [segment.moved, make("div", { class: "mask" }, make("div", { class: "paper" }, pixels(segment.mask)), make("span", { class: "quiet" }, `strokes of the ${segment.class_name}`))]
    : [];
  return make("figure", {}, make("div", { class: "night" }, canvas), make("figcaption", {}, title, ...lines), ...mask);
}

const COLOURS = ["rgb(255 122 89)", "rgb(64 196 208)"]; // warm and cold; light where they meet, and apart for all kinds of colour vision

/**
 * @param {string[]} sources pictures of one size
 * @param {number} first place of the first one's colour
 * @returns {Promise<HTMLCanvasElement>} their sum, each in its colour
 */
async function paint(sources, first) {
  const images = await Promise.all(sources.map(load));
  const painted = images.map((image, place) => tint(image, COLOURS[(first + place) % COLOURS.length]));
  const [sum, ...others] = painted.map((canvas) => canvas.getContext("2d"));
  sum.globalCompositeOperation = "lighter";
  for (const { canvas } of others) sum.drawImage(canvas, 0, 0);
  sum.globalCompositeOperation = "copy"; // of another picture in its place
  return sum.canvas;
}

async function load(source) {
  const image = make("img", { src: source });
  await image.decode();
  return image;
}

function tint(image, colour) {
  const { width, height } = image;
  const canvas = make("canvas", { width, height, role: "img", class: "blocks" });
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  context.globalCompositeOperation = "multiply";
  context.fillStyle = colour;
  context.fillRect(0, 0, width, height);
  return canvas;
}
