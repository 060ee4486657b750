/** A map of numbers over a picture, in one scale for all pictures: orange below zero, blue above. */

import { Cells } from "./cells.js";
import { make } from "./dom.js";

/** The change at which a colour is full. */
export const STRONGEST = 0.25;
/** The changes in the legend. */
const STEPS = [0.02, 0.1, STRONGEST];

/** @param {number[][]} values rows of columns @param {string} label @returns {HTMLElement} a cell for each */
export function mapOf(values, label) {
  const cells = new Cells(values.flat().length, values[0].length, { role: "img", "aria-label": label });
  cells.paint(values, (value) => [sideOf(value), strength(value)]);
  return cells.grid;
}

function sideOf(change) {
  return change < 0 ? "supports" : "opposes";
}

/** By the square root, so that small changes are visible and no picture has a scale of its own. */
function strength(value) {
  return 0.9 * Math.sqrt(Math.min(Math.abs(value) / STRONGEST, 1));
}

/** The colours with the changes that they stand for. @returns {HTMLElement} */
export function legend(below, above) {
  const side = (word, sign) => make("span", {}, word, ...STEPS.map((step) => colourOf(sign * step)));
  return make("p", { class: "legend quiet" }, side(below, -1), side(above, 1));
}

function colourOf(change) {
  const swatch = make("span", { class: `swatch ${sideOf(change)}` });
  swatch.style.opacity = strength(change);
  return make("span", {}, swatch, ` ${change < 0 ? "−" : "+"}${Math.abs(change)}`);
}
