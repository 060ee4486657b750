/** Sliders that move a pose: along its directions, or one dimension at a time; the reconstruction follows. */

import { recall, remember } from "./address.js";
import { ask } from "./api.js";
import { explained, find, make, NOTHING_YET, show } from "./dom.js";
import { latest } from "./latest.js";

/** How far the slider of a dimension goes each way. */
const REACH = 0.5;
/** How far the slider of a direction goes each way, at most and at least: standard deviations of the class. */
const FARTHEST = 2;
const LEAST = 0.4;
const STEP = { direction: 0.04, dimension: 0.01 };
/** The directions next to the reconstruction; the others are in the panel. */
const FIRST = 3;
const ALONG_DIRECTIONS = "Each slider moves the pose along one direction. This changes one thing about the drawing much more than the rest. "
  + "Each slider shows the value that you ask for. After you move it, it also shows the value that is measured on the drawing. "
  + `The first ${FIRST} directions are next to the large reconstruction.`;
const ONE_NUMBER = "Each slider moves one number of the pose. No directions with a meaning were found for this class.";
/** Pictures that one request decodes. */
const MOST = 256;
const first = find("directions");
const panel = find("pose");
const preview = make("img", { class: "pixels", alt: "", hidden: true });
const lead = make("p", { class: "lead" });
const preamble = make("p", { class: "quiet" });
const further = make("div", { class: "sliders" });
const grid = make("div", { class: "sliders" });
const raw = make("details", {}, make("summary", {}, "The numbers of the pose"), grid);
const reset = make("button", { type: "button", disabled: true, onclick: () => resetPose() }, "Reset");
const beside = make("div", {}, preamble, reset);
panel.append(
  make(
    "div",
    { class: "bench" },
    make("div", {}, lead, explained("pose")),
    make("div", { class: "preview" }, make("div", { class: "paper" }, preview), beside),
    further,
    raw,
  ),
);

/** @type {{draw: (pose: number[], moved: boolean) => void, pose: number[], sliders: any[]}} */
let current = null;

/**
 * Put the sliders on a pose, and move those that the address tells of.
 *
 * @param {number[]} pose
 * @param {any[]} directions of the class
 * @param {(pose: number[], moved: boolean) => void} draw called with every pose that is set, and whether it is moved
 */
export function showPose(pose, directions, draw) {
  const moved = readMoved(recall("pose"));
  const along = directions.map((one, index) => slider(`d${index}`, one.name, "direction", pose, { ...one, vector: one.vector.map((part) => part * one.std) }));
  const own = pose.map((_, dim) => slider(String(dim), `dimension ${dim}`, "dimension", pose, { vector: pose.map((__, place) => Number(place === dim)) }));
  current = { pose, draw, sliders: [...along, ...own] };
  for (const one of current.sliders) one.input.value = moved.get(one.key) ?? 0;
  const near = along.slice(0, FIRST).map((one) => one.element);
  first.replaceChildren(...near);
  (near.length ? first : beside).append(reset);
  further.replaceChildren(...along.slice(FIRST).map((one) => one.element));
  grid.replaceChildren(...own.map((one) => one.element));
  lead.textContent = along.length ? ALONG_DIRECTIONS : ONE_NUMBER;
  raw.hidden = false;
  if (!along.length || own.some(({ key }) => moved.get(key))) raw.open = true;
  update();
  if (!reset.disabled) current.draw(movedPose(), true);
}

/** Show what each slider does: the picture at both of its ends. */
export const showEnds = latest(async (scene, wanted) => {
  if (!scene?.decoded || !current) return;
  const ends = current.sliders.flatMap((one) => one.ends.map((image, place) => ({ one, image, by: place ? one.up : -one.down })))
    .filter(({ image }) => image.hidden).slice(0, MOST);
  if (!ends.length) return;
  const poses = ends.map(({ one, by }) => add(current.pose, one, by));
  const { images } = await ask("/decode", { query: { model: scene.model.name }, body: { poses, label: scene.target }, wanted });
  ends.forEach(({ image }, place) => show(image, images[place]));
});

/** Sliders and hundredths, as in "4_12.d0_-5": dimension 4 by 0.12 and the first direction by -0.05. */
function readMoved(text = "") {
  const pairs = text.split(".").map((pair) => pair.split("_"));
  return new Map(pairs.map(([key, hundredths]) => [key, Number(hundredths) / 100 || 0]));
}

function writeMoved() {
  const pairs = current.sliders.map(({ key, input }) => [key, Math.round(100 * Number(input.value))]);
  return pairs.filter(([, hundredths]) => hundredths).map((pair) => pair.join("_")).join(".");
}

/** No picture, no sliders. */
export function hidePose() {
  current = null;
  reset.disabled = true;
  preamble.textContent = "";
  first.replaceChildren();
  further.replaceChildren(make("p", { class: "quiet" }, NOTHING_YET));
  grid.replaceChildren();
  raw.hidden = true;
}

/** A slider. For a direction, it also shows the value asked for, the value measured and the range of the class. */
function slider(key, name, kind, pose, { vector, reading, unit = "", std = 1, quantiles = [] }) {
  const id = `${kind}-${key}`;
  const read = reading && dot(pose, reading.weights) + reading.intercept;
  const [down, up] = reading ? reach({ std, quantiles }, read) : [REACH, REACH];
  const value = make("output", { for: id });
  const range = quantiles.length ? `usual: ${amount(quantiles[0])} to ${amount(quantiles.at(-1), unit)}` : "";
  const effect = make("p", { class: "effect quiet", id: `about-${id}` }, range);
  const input = make("input", { type: "range", id, min: -down, max: up, step: STEP[kind], value: 0, oninput: () => move() });
  input.setAttribute("aria-describedby", effect.id);
  const ends = [0, 1].map(() => make("img", { class: "pixels", alt: "", hidden: true }));
  const element = make("div", { class: "slider" }, make("label", { for: id }, name), value, make("div", { class: "ends" }, ends[0], input, ends[1]), effect);
  const one = { key, name: kind === "direction" ? name : "", vector, down, up, input, ends, element, drawn: undefined, say };

  function say() {
    const by = Number(input.value);
    const drawn = one.drawn === undefined ? "" : `, drawn ${amount(one.drawn)}`;
    const text = reading ? `${amount(read + by * std)}${drawn} ${unit}`.trim() : signed(by);
    value.textContent = text;
    input.setAttribute("aria-valuetext", text);
  }

  return one;
}

/**
 * How far a direction goes down and up from the value read, in standard deviations: to the ends of the class.
 *
 * @param {{std: number, quantiles: number[]}} direction
 * @param {number} read
 * @returns {[number, number]}
 */
export function reach({ std, quantiles }, read) {
  const whole = (distance) => Number((Math.round(distance / STEP.direction) * STEP.direction).toFixed(2));
  const within = (distance) => whole(Math.min(FARTHEST, Math.max(LEAST, distance / std)));
  return [within(read - quantiles[0]), within(quantiles.at(-1) - read)];
}

function dot(one, other) {
  return one.reduce((sum, value, place) => sum + value * other[place], 0);
}

function add(pose, { vector }, by) {
  return pose.map((start, dim) => start + by * vector[dim]);
}

/** A value in two or three digits, with its unit. */
export function amount(value, unit = "") {
  const digits = Math.abs(value) >= 10 ? 0 : Math.abs(value) >= 1 ? 1 : 2;
  return `${value.toFixed(digits)} ${unit}`.trim().replace("-", "−");
}

function move() {
  update();
  remember({ pose: writeMoved() }, { replace: true });
  current.draw(movedPose(), !reset.disabled);
}

/** Say the sliders' values. */
function update() {
  for (const one of current.sliders) one.say();
  reset.disabled = current.sliders.every(({ input }) => Number(input.value) === 0);
  preamble.textContent = reset.disabled ? "reconstruction" : "reconstruction from the moved pose";
}

function resetPose() {
  for (const { input } of current.sliders) input.value = "0";
  move();
  current.sliders[0]?.input.focus();
}

function movedPose() {
  return current.sliders.reduce((pose, one) => add(pose, one, Number(one.input.value)), current.pose);
}

/** A number with its sign. */
export function signed(value) {
  return value > 0 ? `+${value}` : String(value).replace("-", "−");
}

const reconstruction = /** @type {HTMLImageElement} */ (find("reconstruction"));
const fitted = /** @type {HTMLImageElement} */ (find("fitted"));

/** An answer of /reconstruct, or nothing. */
export function showDecoded(decoded) {
  const alt = decoded ? `reconstruction of class ${decoded.class_name}` : undefined;
  showReconstruction(decoded?.reconstruction, alt);
  show(fitted, decoded?.input, "the network input");
  tellError(decoded);
}

/** An image decoded from a pose that was moved, and what was measured on it, by the name of the direction. */
export function showMoved(image, measured = {}) {
  showReconstruction(image, reconstruction.alt);
  for (const one of current?.sliders ?? []) {
    one.drawn = measured[one.name]?.[0];
    one.say();
  }
}

/** How far the reconstruction is from the network's input; nothing of one whose pose was moved. */
export function tellError(decoded) {
  find("error").textContent = decoded ? `mean squared error ${decoded.error.toFixed(3)}` : "";
}

function showReconstruction(image, alt) {
  show(reconstruction, image, alt);
  show(preview, image); // next to the sliders, from where the large one may be out of sight
}
