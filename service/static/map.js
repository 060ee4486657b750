/** A map of numbers over a picture, in one scale for all pictures: orange below zero, blue above. */

import { make } from "./dom.js";

/** The change at which a colour is full. */
export const STRONGEST = 0.25;
/** The changes in the legend. */
const STEPS = [0.02, 0.1, STRONGEST];

/** @param {number[][]} values rows of columns @returns {HTMLCanvasElement} a pixel for each */
export function mapOf(values) {
  const [height, width] = [values.length, values[0].length];
  const canvas = make("canvas", { class: "blocks", width, height });
  const colours = getComputedStyle(document.documentElement);
  const [falls, rises] = ["--supports", "--opposes"].map((name) => colours.getPropertyValue(name).trim().split(/\s+/).map(Number));
  const image = new ImageData(width, height);
  values.flat().forEach((value, place) => {
    image.data.set([...(value < 0 ? falls : rises), 255 * strength(value)], 4 * place);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
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
  const swatch = make("span", { class: `swatch ${change < 0 ? "supports" : "opposes"}` });
  swatch.style.opacity = strength(change);
  return make("span", {}, swatch, ` ${change < 0 ? "−" : "+"}${Math.abs(change)}`);
}
