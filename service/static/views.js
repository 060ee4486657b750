/** Lenses for the views that have none of their own, made from the OpenAPI document: a control for each parameter. */

import { recall, remember } from "./address.js";
import { ask, Problem, upload } from "./api.js";
import { make, show } from "./dom.js";
import { latest } from "./latest.js";
import { offers } from "./models.js";
import { complain } from "./notice.js";
import { fetchSample } from "./samples.js";

/** What the page shows in another way. */
const SHOWN = new Set(["classify", "reconstruct", "perturb", "decode", "sweep", "routing", "routing_off", "equivariance", "segment_image"]);
/** What the page chooses itself. */
const CHOSEN = new Set(["model", "target", "fit", "polarity", "scale"]);
const SLIDER_STEPS = 100;
const LARGEST_SCALE = 8;

/** @returns {Promise<any[]>} a view for each route that takes pictures and draws: name, title, text, what it needs, parameters */
export async function loadViews() {
  const { paths } = await ask("/openapi.json");
  return Object.entries(paths)
    .filter(([, { post }]) => post && draws(post) && pictures(post) && !SHOWN.has(post.operationId))
    .map(([path, { post }]) => ({
      path,
      name: post.operationId,
      title: post.operationId.replace(/_/g, " ").replace(/^./, (first) => first.toUpperCase()),
      lead: `${post.summary}.`,
      more: post.description ?? "",
      pictures: pictures(post),
      needs: post["x-needs"],
      parameters: (post.parameters ?? []).filter((one) => one.in === "query"),
    }));
}

function draws({ responses }) {
  const content = responses["200"].content ?? {};
  return "image/png" in content && "application/json" in content;
}

/** How many pictures a route takes: one, two, or 0 for what this page cannot send. */
function pictures({ requestBody }) {
  const file = requestBody?.content["multipart/form-data"]?.schema.properties.file;
  if (!file) return 0;
  const [least, most] = [file.minItems ?? 1, file.maxItems ?? 1];
  return least === most && most <= 2 ? most : 0;
}

/** A tab and its panel. @returns {{tab: HTMLElement, panel: HTMLElement}} */
export function panelOf({ name, title }) {
  const id = panelId(name);
  return {
    tab: make("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": id }, title),
    panel: make("section", { role: "tabpanel", id, "aria-labelledby": `tab-${id}`, hidden: true }),
  };
}

export function panelId(name) {
  return `view-${name.replace(/_/g, "-")}`;
}

/**
 * @param {any} view
 * @param {any} scene
 * @param {() => boolean} wanted
 * @returns {Promise<Node[]>}
 */
export async function drawView(view, scene, wanted) {
  const image = make("img", { class: "drawn", hidden: true, alt: "" });
  const refusal = make("p", { class: "quiet" });
  const result = make("div", {}, image, refusal);
  const controls = view.parameters.filter(({ name }) => !CHOSEN.has(name)).map((one) => control(view, one, scene.model, redraw));
  const other = view.pictures === 2 ? await secondPicture(view, scene, wanted, redraw) : null;
  const fill = latest(async (_, newest) => {
    result.setAttribute("aria-busy", "true");
    try {
      const blob = await ask(view.path, {
        query: query(view, scene, controls),
        body: upload(scene.picture, ...(other ? [await other.picture()] : [])),
        accept: "image/png",
        wanted: () => wanted() && newest(),
      });
      URL.revokeObjectURL(image.src);
      refusal.textContent = "";
      show(image, URL.createObjectURL(blob), `${view.title}: ${view.lead}`);
    } catch (error) {
      if (!(error instanceof Problem) || ![409, 422].includes(error.status)) throw error;
      show(image, null);
      refusal.textContent = error.detail ?? error.title;
    } finally {
      result.removeAttribute("aria-busy");
    }
  }, complain);

  function redraw(changes) {
    remember(changes);
    fill();
  }

  await fill();
  const rows = [...(other ? [other.row] : []), ...controls.map(({ row }) => row)];
  return [
    make("p", { class: "lead" }, view.lead),
    ...(view.more ? [make("p", { class: "lead quiet" }, view.more)] : []),
    ...(rows.length ? [make("div", { class: "controls" }, ...rows)] : []),
    result,
  ];
}

function query({ parameters }, { model, target }, controls) {
  const known = Object.fromEntries(parameters.map(({ name, schema }) => [name, schema]));
  const values = { model: model.name };
  if ("target" in known) values.target = target;
  if ("scale" in known) values.scale = Math.min(LARGEST_SCALE, known.scale.maximum ?? LARGEST_SCALE);
  for (const { name, value } of controls) if (value() !== "") values[name] = value();
  return values;
}

/** The control of a parameter by its schema, in a row with its name; its value is in the address. */
function control(view, { name, description = "", required, schema }, model, redraw) {
  const key = `${view.name}.${name}`;
  const id = `${panelId(view.name)}-${name}`;
  const field = fieldOf(schema, id, required);
  const told = recall(key) ?? schema.default ?? (required ? (schema.minimum ?? "") : "");
  if (field.type === "checkbox") field.checked = String(told) === "true";
  else field.value = String(told);
  if (name === "dim" && model.class_dim) field.max = model.class_dim - 1;
  const value = () => (field.type === "checkbox" ? String(field.checked) : field.value);
  const output = field.type === "range" ? make("output", { for: id }) : null;
  const say = () => output?.replaceChildren(String(Math.round(1000 * field.value) / 1000).replace("-", "−"));
  field.addEventListener("input", say);
  say();
  field.addEventListener("change", () => field.reportValidity() && redraw({ [key]: value() }));
  const words = name.replace(/_/g, " ");
  const parts = output ? [output, field] : [" ", field];
  const row = make("div", { class: output ? "slider" : "choice", title: description }, make("label", { for: id }, words), ...parts);
  return { name, value, row };
}

function fieldOf(schema, id, required) {
  const { type, minimum, maximum } = schema;
  if (schema.enum) {
    const none = required || schema.default !== undefined ? [] : [""];
    return make("select", { id }, ...[...none, ...schema.enum].map((one) => make("option", { value: one }, one)));
  }
  if (type === "boolean") return make("input", { id, type: "checkbox" });
  if (type !== "integer" && type !== "number") return make("input", { id, type: "text" });
  const whole = type === "integer";
  const slides = schema.default !== undefined && maximum - minimum <= SLIDER_STEPS;
  const bounds = { min: minimum ?? null, max: maximum ?? null, step: whole ? 1 : "any" };
  return make("input", { id, type: slides ? "range" : "number", ...bounds });
}

/** A choice among prototypes of the class, where the bundle has some, and samples, for views of two pictures. */
async function secondPicture(view, { model, target, picture }, wanted, redraw) {
  const key = `${view.name}.second`;
  const id = `${panelId(view.name)}-second`;
  const others = [
    ...(await prototypes(model, target, picture, wanted)),
    ...model.samples.map((sample) => ({ name: sample.name, alike: sample.label === target, load: () => fetchSample(sample) })),
  ];
  const choice = make("select", { id }, ...others.map(({ name }, place) => make("option", { value: place }, name)));
  choice.value = recall(key) ?? String(Math.max(others.findIndex(({ alike }) => alike), 0));
  choice.addEventListener("change", () => redraw({ [key]: choice.value }));
  const row = make("div", { class: "choice" }, make("label", { for: id }, "second picture"), " ", choice);
  return others.length ? { picture: () => others[choice.value].load(), row } : null;
}

async function prototypes(model, target, picture, wanted) {
  if (!offers(model, "neighbours")) return [];
  const query = { model: model.name, target, count: 1 };
  const answer = await ask("/neighbours", { query, body: upload(picture), wanted });
  return answer.prototypes.map(({ image }, place) => {
    const bytes = Uint8Array.from(atob(image.split(",")[1]), (letter) => letter.charCodeAt(0));
    const name = `prototype ${place + 1} of ${answer.class_name}`;
    return { name, alike: true, load: () => new Blob([bytes], { type: "image/png" }) };
  });
}
