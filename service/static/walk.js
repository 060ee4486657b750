/** Equivariance: the picture is moved step by step; does the length stay, does the pose turn? */

import { recall, remember } from "./address.js";
import { ask, upload } from "./api.js";
import { chart } from "./chart.js";
import { make, pixels } from "./dom.js";
import { latest } from "./latest.js";
import { complain } from "./notice.js";

const TRANSFORMS = {
  turn: { name: "turn", unit: "°", css: (value) => `rotate(${-value}deg)` },
  "shift-x": { name: "shift right", unit: " px", css: (value, { width }) => `translateX(${(100 * value) / width}%)` },
  "shift-y": { name: "shift down", unit: " px", css: (value, { height }) => `translateY(${(100 * value) / height}%)` },
  scale: { name: "scale", unit: "×", css: (value) => `scale(${value})` },
};
const THUMBNAILS = 7;

/** @returns {Promise<Node[]>} */
export async function drawWalk(scene, wanted) {
  const result = make("div", { class: "walk" });
  const choice = make("select", { id: "transform" });
  choice.append(...Object.entries(TRANSFORMS).map(([value, { name }]) => make("option", { value }, name)));
  const told = recall("transform");
  const chosen = Object.hasOwn(TRANSFORMS, told ?? "") ? told : "turn";
  choice.value = chosen;
  const fill = latest(async (transform, stillWanted) => {
    result.setAttribute("aria-busy", "true");
    try {
      result.replaceChildren(...(await curves(scene, transform, stillWanted)));
    } catch (error) {
      result.replaceChildren();
      throw error;
    } finally {
      result.removeAttribute("aria-busy");
    }
  }, complain);
  choice.addEventListener("change", () => {
    remember({ transform: choice.value });
    fill(choice.value);
  });
  result.replaceChildren(...(await curves(scene, chosen, wanted)));
  return [
    make("p", { class: "lead" }, `Equivariance: as the picture is transformed, the ${scene.model.presence} should stay${scene.model.class_dim ? " and the pose should change with it" : ""}.`),
    make("p", { class: "choice" }, make("label", { for: "transform" }, "transformation"), " ", choice),
    result,
  ];
}

async function curves({ model, picture, target, input }, transform, wanted) {
  const query = { model: model.name, target, transform, steps: 25 };
  const walk = await ask("/equivariance", { query, body: upload(picture), wanted });
  const { unit, css } = TRANSFORMS[transform];
  const label = (value) => `${Math.round(value * 100) / 100}${unit}`.replace("-", "−");
  const marked = walk.labels.map((longest) => longest !== walk.label);
  const angles = walk.angles_deg ?? [];
  const steepest = Math.max(30, Math.ceil(Math.max(...angles) / 30) * 30);
  const turned = { title: "angle to the pose of the untransformed picture", values: walk.values, heights: angles, top: steepest, label, unit: "°" };
  return [
    ...(input ? [strip(walk.values, input, (value) => css(value, model), label)] : []),
    chart({
      title: `${model.presence} of ${walk.class_name}`,
      values: walk.values,
      heights: walk.lengths,
      top: 1,
      label,
      unit: "",
      marked,
    }),
    ...(angles.length ? [chart(turned)] : []),
    ...(marked.some(Boolean) ? [make("p", { class: "quiet" }, `Ringed: another class has a higher ${model.presence}.`)] : []),
  ];
}

function strip(values, input, css, label) {
  const figures = Array.from({ length: THUMBNAILS }, (_, place) => {
    const value = values[Math.round((place * (values.length - 1)) / (THUMBNAILS - 1))];
    const image = pixels(input);
    image.style.transform = css(value);
    return make("figure", {}, make("div", { class: "paper" }, image), make("figcaption", {}, label(value)));
  });
  return make("div", { class: "strip", "aria-hidden": "true" }, ...figures);
}
