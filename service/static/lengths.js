/** The ten capsule lengths, as bars and as text. */

import { find, make } from "./dom.js";

const list = find("lengths");
const verdict = find("verdict");
const familiar = find("familiar");

/**
 * @param {string[]} names of the classes
 * @param {(label: number) => void} choose called when a class is clicked
 */
export function showClasses(names, choose) {
  list.replaceChildren(...names.map((name, label) => bar(name, label, choose)));
  showPrediction(null);
}

function bar(name, label, choose) {
  const button = make(
    "button",
    { type: "button", class: "bar", onclick: () => choose(label) },
    make("span", { class: "name" }, name),
    make("span", { class: "track" }, make("span", { class: "fill" })),
    make("span", { class: "value" }, "–"),
  );
  return make("li", {}, button);
}

/** @param {{label: number, class_name: string, length: number, lengths: number[], familiarity?: any} | null} prediction */
export function showPrediction(prediction) {
  for (const [label, item] of [...list.children].entries()) {
    const length = prediction?.lengths[label] ?? 0;
    item.classList.toggle("longest", label === prediction?.label);
    item.querySelector(".fill").style.setProperty("--length", length.toFixed(4));
    item.querySelector(".value").textContent = prediction ? length.toFixed(2) : "–";
  }
  verdict.replaceChildren(...(prediction ? sentence(prediction) : [make("span", { class: "none" }, "?")]));
  familiar.textContent = prediction ? doubt(prediction) : "The length of a capsule says how sure it is.";
}

function sentence({ class_name: name, length }) {
  return [make("strong", {}, name), " ", make("span", { class: "quiet" }, `length ${length.toFixed(2)}`)];
}

function doubt({ length, familiarity }) {
  if (length < 0.5) return "No capsule is long: it is not sure that this is anything it knows.";
  if (familiarity?.known === false) return "Looks unlike what it was trained on.";
  return familiarity ? "Looks like what it was trained on." : "";
}

/** Mark the class that is imagined. */
export function markTarget(target) {
  for (const [label, item] of [...list.children].entries()) {
    item.querySelector("button").setAttribute("aria-pressed", String(label === target));
  }
}
