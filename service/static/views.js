/** Lenses for the views, made from the OpenAPI document: a control for each parameter, and the figure that the service draws. */

import { recallNumber, remember } from "./address.js";
import { ask, Problem, upload } from "./api.js";
import { control } from "./controls.js";
import { explained, figureOf, make, unmarked } from "./dom.js";
import { fileChooser } from "./files.js";
import { latest } from "./latest.js";
import { forArrays, offers } from "./models.js";
import { calm } from "./notice.js";
import { fetchSample } from "./samples.js";

/** What the page shows in another way. */
const SHOWN = new Set(["classify", "reconstruct", "perturb", "decode", "sweep", "routing", "routing_off", "segment"]);
/** What the page chooses itself. */
const CHOSEN = new Set(["model", "target", "fit", "polarity", "scale"]);

/** @returns {Promise<any[]>} a view for each route that takes pictures and draws: name, title, text, what it needs, parameters */
export async function loadViews() {
  const { paths } = await ask("/openapi.json");
  return Object.entries(paths)
    .filter(([, { post }]) => post && !post.deprecated && draws(post) && pictures(post) && !SHOWN.has(post.operationId))
    .map(([path, { post }]) => ({
      path,
      name: post.operationId,
      title: post.operationId.replace(/_/g, " ").replace(/^./, (first) => first.toUpperCase()),
      lead: unmarked(`${post.summary}.`),
      more: unmarked(post.description ?? ""),
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
  const result = make("div", { class: "result" });
  const names = (name) => ({ key: `${view.name}.${name}`, id: `${panelId(view.name)}-${name}` });
  const controls = view.parameters
    .filter(({ name }) => !CHOSEN.has(name))
    .map((one) => control(names(one.name), one, scene, redraw));
  const other = view.pictures === 2 ? await secondPicture(view, scene, wanted, redraw) : null;
  const fill = latest(async (_, newest) => {
    try {
      const options = { query: query(view, scene, controls), wanted: () => wanted() && newest() };
      const second = await other?.picture();
      if (other && !second) return result.replaceChildren(make("p", { class: "quiet" }, "Choose a second picture."));
      const body = upload(scene.picture, ...(other ? [second] : []));
      const drawing = await ask(view.path, { ...options, body, accept: "image/png" });
      for (const one of controls) one.refuse("");
      calm();
      result.replaceChildren(figureOf(drawing, `${view.title}: ${scene.model.class_names[scene.target]}`));
    } catch (error) {
      if (!(error instanceof Problem) || ![409, 422].includes(error.status)) throw error;
      refuse(error);
    }
  }, result);

  /** Say what is wrong: at the field that is to blame, or in place of the result. */
  function refuse({ parameter, detail, title }) {
    const blamed = controls.find(({ name }) => name === parameter);
    if (blamed) blamed.refuse(detail ?? title);
    result.replaceChildren(...(blamed ? [] : [make("p", { class: "quiet" }, detail ?? title)]));
  }

  function redraw(changes) {
    remember(changes);
    fill();
  }

  await fill();
  const rows = [...(other ? [other.row] : []), ...controls.map(({ row }) => row)];
  return [
    make("p", { class: "lead" }, view.lead),
    ...(view.more ? [make("p", { class: "lead quiet" }, view.more)] : []),
    explained(view.name),
    ...(rows.length ? [make("div", { class: "controls" }, ...rows)] : []),
    result,
  ];
}

function query({ parameters }, { model, target }, controls) {
  const values = { model: model.name };
  if (parameters.some(({ name }) => name === "target")) values.target = target;
  for (const { name, value } of controls) if (value() !== "") values[name] = value();
  return values;
}

/** A choice among prototypes of the class, where the bundle has some, samples and files, for views of two pictures. */
async function secondPicture(view, { model, target, picture }, wanted, redraw) {
  const key = `${view.name}.second`;
  const id = `${panelId(view.name)}-second`;
  const others = [
    ...(forArrays(model) ? [] : await prototypes(model, target, picture, wanted)), // which are pictures
    ...model.samples.map((sample) => ({ name: sample.name, alike: sample.label === target, load: () => fetchSample(sample) })),
  ];
  const choice = make("select", { id });
  const offer = ({ name }, place) => choice.append(make("option", { value: place }, name));
  const choose = () => redraw({ [key]: choice.value });
  others.forEach(offer);
  const kept = recallNumber(key);
  choice.value = String(kept in others ? kept : Math.max(others.findIndex(({ alike }) => alike), 0));
  choice.addEventListener("change", choose);
  const chooser = fileChooser((file) => {
    offer(file, others.push({ load: () => file }) - 1);
    choice.value = String(others.length - 1);
    choose();
  });
  const row = make("div", { class: "control" }, make("label", { for: id }, "second picture"), " ", choice, " ", ...chooser);
  return { picture: () => others[choice.value]?.load(), row };
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
