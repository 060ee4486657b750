/** How present each class is, as bars and as text. */

import { find, make } from "./dom.js";

const list = find("lengths");
const verdict = find("verdict");
const novelty = find("novelty");
const MOST_NAMES = 3;
/** How often the set of labels contains the true one, for images like those of the calibration. */
export const COVERAGE = 0.95;
/** What the bars are: "length", "activation" or "probability". */
let presence = "length";
/** The novelty score above which a picture is novel; undefined where there is no rule. */
let threshold;

/**
 * @param {{class_names: string[], presence: string}} model
 * @param {(label: number) => void} choose called when a class is clicked
 */
export function showClasses({ class_names: names, presence: kind, novelty: rule }, choose) {
  presence = kind;
  threshold = rule && 1 - rule.threshold;
  list.setAttribute("aria-label", `${kind} of each class`);
  list.replaceChildren(...names.map((name, label) => bar(name, label, choose)));
  showPrediction(null);
}

function bar(name, label, choose) {
  const button = make(
    "button",
    { type: "button", class: "bar", onclick: () => choose(label) },
    ...cells(name),
  );
  return make("li", {}, button);
}

function cells(name) {
  const track = make("span", { class: "track" }, make("span", { class: "fill" }));
  return [make("span", { class: "name" }, name), track, make("span", { class: "value" }, "–")];
}

/** The lengths once more, to look at: a list without buttons. */
export function stillBars({ class_names: names, presence: kind }, prediction) {
  const bars = names.map((name) => make("li", {}, make("span", { class: "bar" }, ...cells(name))));
  const still = make("ol", { class: "lengths", "aria-label": `${kind} of each class` }, ...bars);
  fill(still, prediction);
  return still;
}

function fill(bars, prediction) {
  const longest = prediction?.labels?.map((one) => one.label ?? one) ?? [prediction?.label];
  for (const [label, item] of [...bars.children].entries()) {
    const length = prediction?.lengths[label] ?? 0;
    item.classList.toggle("longest", longest.includes(label));
    item.querySelector(".fill").style.setProperty("--length", length.toFixed(4));
    item.querySelector(".value").textContent = prediction ? length.toFixed(2) : "–";
  }
}

/**
 * @param {{label: number, class_name: string, length: number, lengths: number[], novelty?: any, probability?: number,
 *   labels?: {label: number, class_name: string}[]} | null} prediction
 * @param {{sentence: string}} [described] what the pose says of the picture
 */
export function showPrediction(prediction, described) {
  fill(list, prediction);
  verdict.replaceChildren(...(prediction ? sentence(prediction) : [make("span", { class: "none" }, "?")]));
  find("sentence").textContent = described ? `The pose says: ${described.sentence}.` : "";
  novelty.classList.toggle("warns", Boolean(prediction?.novelty?.novel));
  novelty.textContent = prediction ? doubt(prediction) : `The ${presence} of a class shows how sure the network is.`;
}

function sentence({ class_name: name, length, labels, probability }) {
  const sure = probability === undefined ? "" : `, probability ${probability.toFixed(2)}`;
  const answer = labels ? anyOf(labels.map((one) => one.class_name)) : name;
  const unsure = labels?.length > 1;
  const figures = `${unsure ? `${name}: ` : ""}${presence} ${length.toFixed(2)}${sure}`;
  const meaning = `The network is unsure between these classes. For images like those kept for calibration, ${Math.round(100 * COVERAGE)} % of all sets contain the true class.`;
  const lines = [figures, ...(unsure ? [meaning] : [])].map((line) => make("span", { class: "quiet" }, line));
  return [make("strong", {}, answer), " ", ...lines];
}

/** "cat or dog"; of many, the first and how many more. */
function anyOf(names) {
  if (names.length <= MOST_NAMES) return names.join(" or ");
  return `${names.slice(0, MOST_NAMES - 1).join(", ")} or ${names.length - MOST_NAMES + 1} others`;
}

function doubt({ length, novelty: found }) {
  if (length < 0.5) return `No class has a ${presence} of 0.5 or more: the network is unsure.`;
  if (!found) return "";
  const figures = `novelty score ${found.score.toFixed(3)}, threshold ${threshold.toFixed(3)}`;
  return found.novel
    ? `Unlike the training images (${figures}): do not trust this answer.`
    : `Like the training images (${figures}).`;
}

/** Mark the class that is reconstructed. */
export function markTarget(target) {
  for (const [label, item] of [...list.children].entries()) {
    item.querySelector("button").setAttribute("aria-pressed", String(label === target));
  }
}
