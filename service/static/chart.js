/** A curve, as SVG. */

import { make, makeSvg } from "./dom.js";

const WIDTH = 480;
const HEIGHT = 200;
const LEFT = 44;
const BOTTOM = 28;
const EDGE = 12;

/**
 * @param {{title: string, values: number[], heights: number[], top: number, unit: string,
 *   low?: number, label: (value: number) => string, marked?: boolean[]}} curve `low` and `top` are the ends of the vertical
 *   axis; points that are `marked` have a ring
 * @returns {Element} a figure
 */
export function chart({ title, values, heights, top, low = 0, label, unit, marked = [] }) {
  const [first, last] = [values[0], values[values.length - 1]];
  const x = (value) => LEFT + ((value - first) / (last - first)) * (WIDTH - LEFT - EDGE);
  const y = (height) => HEIGHT - BOTTOM - ((height - low) / (top - low)) * (HEIGHT - BOTTOM - EDGE);
  const points = values.map((value, place) => `${x(value).toFixed(1)},${y(heights[place]).toFixed(1)}`);
  const summary = `${title}: ${number(Math.min(...heights))}${unit} to ${number(Math.max(...heights))}${unit}, `
    + `from ${label(first)} to ${label(last)}`;
  const drawing = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": summary });
  for (const height of [low, (low + top) / 2, top]) {
    drawing.append(line(LEFT, y(height), WIDTH - EDGE, y(height), "rule"));
    drawing.append(text(LEFT - 8, y(height) + 4, "end", `${number(height)}${unit}`));
  }
  for (const value of [first, (first + last) / 2, last]) {
    const anchor = value === first ? "start" : value === last ? "end" : "middle";
    drawing.append(text(x(value), HEIGHT - 8, anchor, label(value)));
  }
  drawing.append(makeSvg("polyline", { points: points.join(" "), class: "curve" }));
  for (const [place, value] of values.entries()) {
    if (marked[place]) drawing.append(makeSvg("circle", { cx: x(value), cy: y(heights[place]), r: 4, class: "other" }));
  }
  return make("figure", { class: "chart" }, make("figcaption", {}, title), drawing);
}

function line(x1, y1, x2, y2, name) {
  return makeSvg("line", { x1, y1, x2, y2, class: name });
}

function text(x, y, anchor, content) {
  return makeSvg("text", { x, y, "text-anchor": anchor }, content);
}

function number(value) {
  return String(Math.round(value * 100) / 100);
}
