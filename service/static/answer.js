/** An answer of the service as pictures, curves and figures, whatever view it is of. */

import { chart } from "./chart.js";
import { make, pixels } from "./dom.js";

/** The field that the page calls by the network's own word. */
const PRESENCE = "length";
/** What moves by itself. */
const MOVING = ["animation"];
/** What the page shows elsewhere, or what is no finding. */
const KNOWN = new Set(["model", "version", "label", "class_name", "length", "fit", "second_fit", "input", "licence", "source", "notes"]);

/**
 * Pictures first, then curves, then single figures; each with the text of the OpenAPI document.
 *
 * @param {any} schema of the answer
 * @param {any} answer
 * @param {{names: string[], presence: string, leave?: string[]}} options names of the classes, the word for their
 *   presence, and fields that are not to be shown
 * @returns {Node[]}
 */
export function renderAnswer(schema, answer, { names, presence, leave = [] }) {
  const say = wordsFor(answer.class_name, presence);
  const hidden = new Set([...KNOWN, ...leave, ...(matchMedia("(prefers-reduced-motion: reduce)").matches ? MOVING : [])]);
  const fields = Object.entries(answer)
    .filter(([name, value]) => !hidden.has(name) && value !== null)
    .map(([name, value]) => ({
      name: say(words(name)),
      value,
      text: say(textOf(schema.properties?.[name])),
      parts: Object.entries(schema.properties?.[name]?.items?.properties ?? {}).map(([part, property]) => [part, say(textOf(property))]),
    }));
  const of = (kind) => fields.filter(({ value }) => kind(value));
  const facts = of((value) => typeof value === "number" || typeof value === "boolean" || (typeof value === "string" && !isPicture(value)));
  return [
    ...of(isPicture).map(({ name, value, text }) => gallery(name, text, [picture(value, "")])),
    ...of((value) => isList(value, isPicture)).map(({ name, value, text }) =>
      gallery(name, text, value.map((one, place) => picture(one, String(place + 1)))),
    ),
    ...of((value) => isList(value, hasPicture)).map(({ name, value, text, parts }) =>
      gallery(name, [text, ...figuresOf(parts, value[0])].join(" "), value.map((one) => card(one, say))),
    ),
    ...curves(of((value) => isList(value, (one) => typeof one === "number")), answer, names),
    ...(facts.length ? [make("dl", { class: "findings" }, ...facts.flatMap(finding))] : []),
  ];
}

function isPicture(value) {
  return typeof value === "string" && value.startsWith("data:image/");
}

function isList(value, kind) {
  return Array.isArray(value) && value.length > 0 && value.every(kind);
}

function hasPicture(value) {
  return typeof value === "object" && value !== null && Object.values(value).some(isPicture);
}

/** The curves over the list that comes first, where there are two, else over the places 1, 2, ... Labels have none. */
function curves(lists, answer, names) {
  const measured = lists.filter(({ name }) => name !== "labels");
  const [first, ...others] = measured;
  if (!first) return [];
  const along = others.filter(({ value }) => value.length === first.value.length);
  const shown = along.length ? along : measured;
  return shown.map(({ name, value, text }) => {
    const marked = answer.labels?.length === value.length ? answer.labels.map((label) => label !== answer.label) : [];
    const others = marked.some(Boolean) ? [make("p", { class: "quiet" }, `Ringed: another class is more present (${listed(answer.labels, answer.label, names)}).`)] : [];
    const values = along.length ? first.value : value.map((_, place) => place + 1);
    const label = (at) => `${along.length ? `${first.name} ` : ""}${Math.round(100 * at) / 100}`;
    const top = Math.max(1, ...value);
    const low = Math.min(0, ...value);
    return make("div", { class: "curve-of" }, chart({ title: text || name, values, heights: value, top, low, label, unit: "", marked }), ...others);
  });
}

function listed(labels, label, names) {
  return [...new Set(labels.filter((one) => one !== label))].map((one) => names[one]).join(", ");
}

function gallery(name, text, figures) {
  const title = make("h3", {}, name);
  return make("div", { class: "gallery" }, title, ...(text ? [make("p", { class: "quiet" }, text)] : []), make("div", { class: "row" }, ...figures));
}

function picture(source, caption) {
  return make("figure", {}, make("div", { class: "paper" }, pixels(source)), make("figcaption", {}, caption));
}

/** What the figures of a card mean. */
function figuresOf(parts, fields) {
  const told = parts.filter(([name, text]) => text && name !== PRESENCE && typeof fields[name] === "number");
  return told.map(([name, text]) => `${words(name).replace(/^./, (first) => first.toUpperCase())}: ${text.replace(/^./, (first) => first.toLowerCase())}`);
}

/** A picture with what is known of it. */
function card(fields, say) {
  const figures = Object.entries(fields).filter(([name, value]) => typeof value === "number" && name !== "label");
  const figure = picture(Object.values(fields).find(isPicture), "");
  const lines = figures.map(([name, value]) => make("span", {}, `${say(words(name))} ${short(value)}`));
  const head = fields.class_name === undefined ? [] : [make("strong", {}, fields.class_name)];
  figure.lastChild.replaceChildren(...head, ...lines);
  return figure;
}

function finding({ name, value, text }) {
  const shown = typeof value === "number" ? short(value) : typeof value === "boolean" ? (value ? "yes" : "no") : value;
  return [make("dt", {}, name), make("dd", {}, shown, ...(text ? [" ", make("span", { class: "quiet" }, text)] : []))];
}

function short(value) {
  return String(Number.isInteger(value) ? value : Math.abs(value) < 10 ? value.toFixed(2) : value.toFixed(1)).replace("-", "−");
}

/** Says what class "the class" is, and calls the presence as the network does. */
function wordsFor(name, presence) {
  return (text) =>
    text
      .replace(/\b(of|in) the class\b/g, name === undefined ? "$&" : `$1 ${name}`)
      .replace(new RegExp(`\\b${PRESENCE}\\b`, "g"), presence)
      .replace(/^Presence\b/, presence.replace(/^./, (first) => first.toUpperCase()));
}

function words(name) {
  return name.replace(/_deg$/, " (°)").replace(/_/g, " ");
}

/** A field's text, without the shape of its numbers and the form of its address. */
function textOf(property) {
  const text = (property?.description ?? "").replace(/^\([^)]*\)[,:]? ?/, "").replace(/ as data:.*/, ".");
  return text.replace(/`/g, "").replace(/^./, (first) => first.toUpperCase());
}
