/** How present each class is, as bars and as text. */

import { find, make } from "./dom.js";

const list = find("lengths");
const verdict = find("verdict");
const familiar = find("familiar");
/** What the bars are: "length", "activation" or "probability". */
let presence = "length";

/**
 * @param {{class_names: string[], presence: string}} model
 * @param {(label: number) => void} choose called when a class is clicked
 */
export function showClasses({ class_names: names, presence: kind }, choose) {
  presence = kind;
  list.setAttribute("aria-label", `${kind} of each class`);
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
  familiar.textContent = prediction ? doubt(prediction) : `The ${presence} of a class says how sure it is.`;
}

function sentence({ class_name: name, length }) {
  return [make("strong", {}, name), " ", make("span", { class: "quiet" }, `${presence} ${length.toFixed(2)}`)];
}

function doubt({ length, familiarity }) {
  if (length < 0.5) return `No class has a ${presence} of a half: it is not sure that this is anything it knows.`;
  if (familiarity?.known === false) return "Looks unlike what it was trained on.";
  return familiarity ? "Looks like what it was trained on." : "";
}

/** Mark the class that is imagined. */
export function markTarget(target) {
  for (const [label, item] of [...list.children].entries()) {
    item.querySelector("button").setAttribute("aria-pressed", String(label === target));
  }
}
