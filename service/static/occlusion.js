/** Occlusion: where the network loses the class, as a map over the picture. */

import { make, pixels } from "./dom.js";
import { legend, mapOf, STRONGEST } from "./map.js";

/** Changes that are rounded to 0.00. */
const NOTHING = 0.005;

/** @returns {Node[]} */
export function drawOcclusion(answer, { model, picture, input, target }) {
  const { map, value, lowest, highest, labels, dim, class_name: name, patch } = answer;
  const source = input ?? (answer.fit.fit === "none" ? URL.createObjectURL(picture) : null);
  const what = dim === undefined || dim === null ? `the ${model.presence} of ${name}` : `dimension ${dim} of the pose of ${name}`;
  const largest = Math.max(...map.flat().map(Math.abs));
  const others = labels.flat().filter((label) => label !== target);
  const named = [...new Set(others)].map((label) => model.class_names[label]).join(", ");
  const facts = largest < NOTHING
    ? [`Nothing changes: ${what} is ${number(value)}, and its mean change is below 0.005 at every pixel.`]
    : [
        `Without the patch, ${what} is ${number(value)}. With the patch, it lies between ${number(lowest)} and ${number(highest)}.`,
        ...(others.length ? [` At ${others.length} of ${labels.flat().length} places, another class is more present: ${named}.`] : []),
      ];
  const summary = `mean change of ${what} by pixel, from ${number(Math.min(...map.flat()))} to ${number(Math.max(...map.flat()))}`;
  const frame = make("span", { class: "patch", "aria-hidden": "true" });
  frame.style.width = `${(100 * patch) / model.width}%`;
  frame.style.height = `${(100 * patch) / model.height}%`;
  return [
    make("p", { class: "lead finding" }, ...facts),
    make(
      "figure",
      { class: "occlusion" },
      make("div", { class: "paper" }, ...(source ? [pixels(source)] : []), mapOf(map, summary), frame),
      make("figcaption", {}, `The frame in the corner is the patch: ${patch} x ${patch} pixels.`),
      legend("falls", "rises"),
      make("p", { class: "quiet" }, `The scale is the same for every picture: the colour is full at a change of ${STRONGEST}.`),
    ),
  ];
}

function number(value) {
  return value.toFixed(2).replace("-", "−");
}
