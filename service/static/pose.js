/** A slider for each dimension of the pose; the reconstruction follows them. */

import { recall, remember } from "./address.js";
import { ask } from "./api.js";
import { find, make, NOTHING_YET, show } from "./dom.js";
import { explained } from "./explained.js";
import { latest } from "./latest.js";
import { complain } from "./notice.js";

const REACH = 0.5; // of a slider, each way; the paper goes to 0.25
/** Pictures that one request decodes. */
const MOST = 256;
const panel = find("pose");
const preview = make("img", { class: "pixels", alt: "", hidden: true });
const preamble = make("p", { class: "quiet" });
const grid = make("div", { class: "sliders" });
const reset = make("button", { type: "button", disabled: true, onclick: () => resetPose() }, "Reset");
panel.append(
  make(
    "div",
    { class: "bench" },
    make(
      "div",
      { class: "reading" },
      make("p", { class: "lead" }, "Each slider changes one dimension of the pose, and the decoder draws the result. The pictures show both ends of a slider. The text below a slider says what changes when you move it to the right, and how much of the change in the picture this explains."),
      explained("pose"),
    ),
    make("div", { class: "preview" }, make("div", { class: "paper" }, preview), make("div", {}, preamble, reset)),
    grid,
  ),
);

/** @type {{draw: (pose: number[], moved: boolean) => void, pose: number[], inputs: HTMLInputElement[]}} */
let current = null;

/**
 * Put the sliders on a pose, named dimensions first, and move those that the address tells of.
 *
 * @param {number[]} pose
 * @param {{name: string, effect: string, strength: number}[]} meanings by dimension
 * @param {(pose: number[], moved: boolean) => void} draw called with every pose that is set, and whether it is moved
 */
export function showPose(pose, meanings, draw) {
  const moved = readMoved(recall("pose"));
  const sliders = pose.map((_, dim) => slider(dim, meanings[dim], moved.get(dim) ?? 0));
  current = { pose, draw, inputs: sliders.map((one) => one.querySelector("input")) };
  const order = sliders.map((_, dim) => dim).sort((one, other) => rank(meanings[one]) - rank(meanings[other]));
  grid.replaceChildren(...order.map((dim) => sliders[dim]));
  update();
  if (!reset.disabled) current.draw(movedPose(), true);
}

/** Dimensions that do what a name says come first, those that explain most before others. */
function rank(meaning) {
  if (!isNamed(meaning)) return 2;
  return meaning.name === "localised" ? 1 : -meaning.strength;
}

function isNamed(meaning) {
  return Boolean(meaning) && meaning.name !== "none";
}

/** Show what each dimension does: the picture at both ends of its slider. */
export const showEnds = latest(async (scene, wanted) => {
  const ends = [...grid.querySelectorAll("img[data-dim][hidden]")].slice(0, MOST);
  if (!scene?.decoded || !ends.length) return;
  const { model, target } = scene;
  const poses = ends.map(({ dataset }) => current.pose.map((start, dim) => start + (dim === Number(dataset.dim) ? Number(dataset.end) : 0)));
  const { images } = await ask("/decode", { query: { model: model.name }, body: { poses, label: target }, wanted });
  ends.forEach((image, place) => show(image, images[place]));
}, complain);

/** Dimensions and hundredths, as in "4_12.7_-5": dimension 4 by 0.12 and 7 by -0.05. */
function readMoved(text = "") {
  const pairs = text.split(".").map((pair) => pair.split("_").map(Number));
  return new Map(pairs.map(([dim, hundredths]) => [dim, hundredths / 100 || 0]));
}

function writeMoved() {
  const pairs = deltas().map((delta, dim) => [dim, Math.round(100 * delta)]);
  return pairs.filter(([, hundredths]) => hundredths).map((pair) => pair.join("_")).join(".");
}

/** Show the picture as it is now next to the sliders: the large one may be out of sight. */
export function showPreview(image) {
  show(preview, image);
}

/** No picture, no sliders. */
export function hidePose() {
  current = null;
  reset.disabled = true;
  preamble.textContent = "";
  grid.replaceChildren(make("p", { class: "quiet" }, NOTHING_YET));
}

function slider(dim, meaning, moved) {
  const id = `dimension-${dim}`;
  const value = make("output", { for: id });
  const effect = make("p", { class: "effect quiet", id: `effect-${dim}` }, tellEffect(meaning));
  const attributes = { type: "range", id, min: -REACH, max: REACH, step: 0.01, value: moved };
  const input = make("input", { ...attributes, oninput: () => move(), "aria-valuetext": "0" });
  input.setAttribute("aria-describedby", effect.id);
  const name = make("label", { for: id }, ...title(meaning, dim));
  const [low, high] = [-REACH, REACH].map((end) =>
    make("img", { class: "pixels", alt: "", hidden: true, "data-dim": dim, "data-end": end }),
  );
  return make("div", { class: "slider" }, name, value, make("div", { class: "ends" }, low, input, high), effect);
}

/** What the picture does as the dimension grows, and how much of the change that explains; or nothing. */
function tellEffect(meaning) {
  return meaning?.effect ? `+ ${meaning.effect}, ${Math.round(100 * meaning.strength)} %` : "";
}

/** What a dimension was found to do, if anything, and its number: several may do the same. */
export function title(meaning, dim) {
  if (!isNamed(meaning)) return [make("span", {}, "dimension"), " ", make("span", { class: "number" }, String(dim))];
  return [make("span", {}, meaning.name), " ", make("span", { class: "number" }, make("span", {}, "dim "), String(dim))];
}

function move() {
  update();
  remember({ pose: writeMoved() }, { replace: true });
  current.draw(movedPose(), !reset.disabled);
}

/** Say the sliders' values. */
function update() {
  for (const input of current.inputs) {
    const text = signed(Number(input.value));
    grid.querySelector(`output[for=${input.id}]`).textContent = text;
    input.setAttribute("aria-valuetext", text);
  }
  reset.disabled = deltas().every((delta) => delta === 0);
  preamble.textContent = reset.disabled ? "reconstruction" : "reconstruction from the moved pose";
}

function resetPose() {
  for (const input of current.inputs) input.value = "0";
  move();
  grid.querySelector("input")?.focus();
}

function movedPose() {
  const by = deltas();
  return current.pose.map((start, dim) => start + by[dim]);
}

function deltas() {
  return current.inputs.map((input) => Number(input.value));
}

/** A number with its sign. */
export function signed(value) {
  return value > 0 ? `+${value}` : String(value).replace("-", "−");
}

/**
 * Decodes poses, the newest first and one at a time.
 *
 * @param {(image: string, request: any) => void} drawn
 * @param {(error: unknown) => void} fail
 * @returns {(request: {model: string, label: number, pose: number[], scene?: any}) => Promise<void>}
 */
export function decoder(drawn, fail) {
  return latest(async (request, wanted) => {
    const { model, label, pose } = request;
    const answer = await ask("/decode", { query: { model }, body: { pose, label }, wanted });
    drawn(answer.images[0], request);
  }, fail);
}
