/** Equivariance: the picture is transformed step by step; does the length stay, does the pose change with it? */

import { chart } from "./chart.js";
import { make, makeSvg, pixels } from "./dom.js";

/** The unit of a transform, and the same transform in CSS. */
const TRANSFORMS = {
  turn: { unit: "°", css: (value) => `rotate(${-value}deg)` },
  "shift-x": { unit: " px", css: (value, { width }) => `translateX(${(100 * value) / width}%)` },
  "shift-y": { unit: " px", css: (value, { height }) => `translateY(${(100 * value) / height}%)` },
  scale: { unit: "×", css: (value) => `scale(${value})` },
};
const THUMBNAILS = 7;
const SIDE = 320;
const EDGE = 34;
/** Of the points and texts of a path. */
const [RADIUS, LETTER, LINE] = [5, 8, 12];

/** Which values an answer took, with their unit. */
export function usedByWalk({ transform, values }) {
  const { unit } = TRANSFORMS[transform];
  return { start: say(values[0], unit), stop: say(values.at(-1), unit) };
}

/** @returns {Node[]} */
export function drawWalk(walk, { model, input }) {
  const { unit, css } = TRANSFORMS[walk.transform];
  const label = (value) => say(value, unit);
  const marked = walk.labels.map((longest) => longest !== walk.label);
  const angles = walk.angles_deg ?? [];
  const steepest = Math.max(30, Math.ceil(Math.max(0, ...angles) / 30) * 30);
  const presence = { title: `${model.presence} of ${walk.class_name}`, values: walk.values, heights: walk.lengths, top: 1, label, unit: "", marked };
  const turned = { title: `angle between the pose of ${walk.class_name} and its pose in the untransformed picture`, values: walk.values, heights: angles, top: steepest, label, unit: "°" };
  return [
    make(
      "div",
      { class: "walk" },
      ...(input ? [strip(walk.values, input, (value) => css(value, model), label)] : []),
      chart(presence),
      ...(angles.length ? [chart(turned)] : []),
      ...(marked.some(Boolean) ? [make("p", { class: "quiet" }, `Ringed: another class has a higher ${model.presence}.`)] : []),
      ...(walk.points ? [pathOf(walk, label)] : []),
    ),
  ];
}

function say(value, unit) {
  return `${Math.round(value * 100) / 100}${unit}`.replace("-", "−");
}

/** From blue at the first step to yellow at the last one. */
function colourOf(step, count) {
  return `hsl(${230 - (175 * step) / (count - 1)} 65% 50%)`;
}

function shownOf(count) {
  return [...new Set(Array.from({ length: THUMBNAILS }, (_, place) => Math.round((place * (count - 1)) / (THUMBNAILS - 1))))];
}

function strip(values, input, css, label) {
  const figures = shownOf(values.length).map((step) => {
    const image = pixels(input);
    image.style.transform = css(values[step]);
    const paper = make("div", { class: "paper" }, image);
    paper.style.borderColor = colourOf(step, values.length);
    return make("figure", {}, paper, make("figcaption", {}, label(values[step])));
  });
  return make("div", { class: "strip", "aria-hidden": "true" }, ...figures);
}

/** Texts at some points of a path, from its ends to its middle, except those that would cover a text or a point. */
function labelsOf(at, texts) {
  const middle = (at.length - 1) / 2;
  const steps = shownOf(at.length).sort((one, other) => Math.abs(other - middle) - Math.abs(one - middle));
  const taken = at.map(([x, y]) => ({ left: x - RADIUS, right: x + RADIUS, top: y - RADIUS, bottom: y + RADIUS }));
  const covers = (box) => taken.some((one) => box.left < one.right && one.left < box.right && box.top < one.bottom && one.top < box.bottom);
  return steps.flatMap((step) => {
    const [x, y] = at[step];
    const width = texts[step].length * LETTER;
    const places = [x + RADIUS, x - RADIUS - width].flatMap((left) =>
      [y - RADIUS, y + RADIUS + LINE].map((bottom) => ({ left, right: left + width, top: bottom - LINE, bottom })),
    );
    const box = places.find((one) => one.left > 0 && one.right < SIDE && !covers(one));
    if (!box) return [];
    taken.push(box);
    return [makeSvg("text", { x: box.left.toFixed(1), y: box.bottom.toFixed(1) }, texts[step])];
  });
}

/** The path of the pose in the plane in which it varies most. */
function pathOf({ points, explained, straightness, values, class_name: name }, label) {
  const middle = [0, 1].map((axis) => (Math.min(...points.map((one) => one[axis])) + Math.max(...points.map((one) => one[axis]))) / 2);
  const reach = Math.max(...points.flatMap((one) => one.map((at, axis) => Math.abs(at - middle[axis])))) || 1;
  const place = ([x, y]) => [
    SIDE / 2 + ((x - middle[0]) / reach) * (SIDE / 2 - EDGE),
    SIDE / 2 - ((y - middle[1]) / reach) * (SIDE / 2 - EDGE),
  ];
  const at = points.map(place);
  const shares = explained.map((share) => Math.round(100 * share));
  const summary = `path of the pose of ${name} from ${label(values[0])} to ${label(values.at(-1))}, straightness ${straightness.toFixed(2)}`;
  const drawing = makeSvg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, role: "img", "aria-label": summary });
  drawing.append(makeSvg("polyline", { points: at.map((one) => one.map((part) => part.toFixed(1)).join(",")).join(" "), class: "path" }));
  at.forEach(([x, y], step) => drawing.append(makeSvg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: RADIUS, fill: colourOf(step, at.length) })));
  drawing.append(...labelsOf(at, values.map(label)));
  const words = `Horizontal: ${shares[0]} % of the variance of the pose; vertical: ${shares[1]} %. Straightness ${straightness.toFixed(2)}: the distance between the ends, divided by the length of the path.`;
  return make("figure", { class: "chart plane" }, make("figcaption", {}, `path of the pose of ${name}`), drawing, make("p", { class: "quiet" }, words));
}
