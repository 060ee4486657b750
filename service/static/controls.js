/** Controls for the parameters of a view: their bounds, units and texts are those of the OpenAPI document. */

import { recall } from "./address.js";
import { make, unmarked } from "./dom.js";
import { offers } from "./models.js";

const SLIDER_STEPS = 100;

/**
 * The control of a parameter in a row with its name; its value is in the address.
 *
 * @param {{key: string, id: string}} names the value's name in the address, and the id of the field
 * @param {any} parameter of the OpenAPI document
 * @param {any} scene
 * @param {(changes: object) => void} redraw
 * @returns {{name: string, value: () => string, row: HTMLElement, refuse: (why: string) => void}} `refuse` says what is wrong with the value
 */
export function control({ key, id }, { name, description = "", required, schema }, scene, redraw) {
  const field = name === "dim" ? dimensionChoice(id, scene) : fieldOf(schema, id, required);
  const kept = recall(key) ?? schema.default ?? (required ? (schema.minimum ?? "") : "");
  if (field.type === "checkbox") field.checked = String(kept) === "true";
  else field.value = String(kept);
  if (field.value === "" && field.options) field.selectedIndex = 0;
  const value = () => (field.type === "checkbox" ? String(field.checked) : field.value);
  const output = field.type === "range" ? make("output", { for: id }) : null;
  const say = () => output?.replaceChildren(number(Number(field.value), schema["x-unit"]));
  const wrong = make("p", { class: "wrong", id: `${id}-wrong`, role: "status" });
  const help = make("p", { class: "quiet", id: `${id}-help` }, unmarked(description));
  field.setAttribute("aria-describedby", `${help.id} ${wrong.id}`);

  function refuse(why) {
    wrong.textContent = why;
    if (why) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }

  field.addEventListener("input", () => {
    refuse("");
    say();
  });
  field.addEventListener("change", () => {
    refuse(field.validationMessage);
    if (field.checkValidity()) redraw({ [key]: value() });
  });
  say();
  const label = make("label", { for: id }, name.replace(/_/g, " "), bounds(field, schema));
  const parts = output ? [make("div", { class: "slider" }, label, output, field)] : [label, " ", field];
  return {
    name,
    value,
    row: make("div", { class: "control" }, ...parts, help, wrong),
    refuse,
  };
}

/** "1 to 64 px" after the name of a number that is typed. */
function bounds(field, { "x-unit": unit }) {
  if (field.type !== "number" || field.min === "" || field.max === "") return "";
  return make("span", { class: "quiet" }, ` ${number(Number(field.min), "")} to ${number(Number(field.max), unit)}`);
}

function fieldOf(schema, id, required) {
  const { type, minimum, maximum } = schema;
  if (schema.enum) {
    const none = required || schema.default !== undefined ? [] : [""];
    const option = (one) => make("option", { value: one }, one.replace(/-/g, " ") || "automatic");
    return make("select", { id }, ...[...none, ...schema.enum].map(option));
  }
  if (type === "boolean") return make("input", { id, type: "checkbox" });
  if (type !== "integer" && type !== "number") return make("input", { id, type: "text" });
  const whole = type === "integer";
  const slides = schema.default !== undefined && maximum - minimum <= SLIDER_STEPS;
  const limits = { min: minimum ?? null, max: maximum ?? null, step: whole ? 1 : "any", placeholder: "automatic" };
  return make("input", { id, type: slides ? "range" : "number", ...limits });
}

/** The dimensions of a pose; first the presence. */
function dimensionChoice(id, { model }) {
  const dims = Array.from({ length: offers(model, "decode") ? model.class_dim : 0 }, (_, dim) => dim);
  const options = dims.map((dim) => make("option", { value: dim }, `dimension ${dim}`));
  return make("select", { id }, make("option", { value: "" }, model.presence), ...options);
}

function number(value, unit = "") {
  return `${Math.round(1000 * value) / 1000}${unit ? ` ${unit}` : ""}`.replace("-", "−");
}
