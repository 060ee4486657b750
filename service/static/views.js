/** Lenses for the views, made from the OpenAPI document: a control for each parameter, and what the answer holds. */

import { recallNumber, remember } from "./address.js";
import { renderAnswer } from "./answer.js";
import { ask, Problem, upload } from "./api.js";
import { fileChooser } from "./chooser.js";
import { control } from "./controls.js";
import { make, unmarked } from "./dom.js";
import { explained } from "./explained.js";
import { latest } from "./latest.js";
import { forArrays, offers } from "./models.js";
import { calm, complain } from "./notice.js";
import { drawOcclusion } from "./occlusion.js";
import { fetchSample } from "./samples.js";
import { shrink } from "./shrink.js";
import { drawWalk, usedByWalk } from "./walk.js";

/** What the page shows in another way. */
const SHOWN = new Set(["classify", "reconstruct", "perturb", "decode", "sweep", "routing", "routing_off", "segment_image"]);
/** What the page chooses itself. */
const CHOSEN = new Set(["model", "target", "fit", "polarity", "scale"]);
/** Views whose answer is drawn by hand, and which values it took for empty fields. */
const DRAWN = {
  equivariance: { draw: drawWalk, used: usedByWalk },
  occlusion: { draw: drawOcclusion },
};
/** What else is to be said of an answer; it may be nothing. */
const NOTES = {
  morph: ({ lengths, class_name: name }, { presence }) =>
    Math.max(...lengths) < 0.5
      ? `In no frame does the ${presence} reach 0.5. This decoder draws images that its encoder does not recognise as ${name}. `
        + "Read the frames as pictures of poses, not as images that the network accepts."
      : "",
  rivals: ({ classes, best_drawn: best }) => `The reconstruction with the smallest error is that of ${classes.find(({ label }) => label === best).class_name}.`,
};
/** What a note says already. */
const NOTED = { rivals: ["best_drawn"] };

/** @returns {Promise<any[]>} a view for each route that takes pictures and draws: name, title, text, what it needs, parameters */
export async function loadViews() {
  const { paths, components } = await ask("/openapi.json");
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
      answer: resolve(post.responses["200"].content["application/json"].schema, components.schemas),
      parameters: (post.parameters ?? []).filter((one) => one.in === "query"),
    }));
}

/** A schema, with those of the items of its lists in place of references. */
function resolve(schema, schemas) {
  const follow = (one) => (one?.$ref ? schemas[one.$ref.split("/").at(-1)] : one);
  const found = follow(schema);
  const properties = Object.entries(found.properties ?? {}).map(([name, one]) => [name, { ...one, items: follow(one.items) }]);
  return { ...found, properties: Object.fromEntries(properties) };
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
    result.setAttribute("aria-busy", "true");
    try {
      const options = { query: query(view, scene, controls), wanted: () => wanted() && newest() };
      const second = await other?.picture();
      if (other && !second) return result.replaceChildren(make("p", { class: "quiet" }, "Choose a second picture."));
      const body = upload(scene.picture, ...(other ? [second] : []));
      const answer = await ask(view.path, { ...options, body });
      const shown = show(view, answer, scene);
      for (const one of controls) one.refuse("");
      calm();
      result.replaceChildren(...shown);
    } catch (error) {
      if (!(error instanceof Problem) || ![409, 422].includes(error.status)) throw error;
      refuse(error);
    } finally {
      result.removeAttribute("aria-busy");
    }
  }, complain);

  /** Say what is wrong: at the field that is to blame, or in place of the result. */
  function refuse({ parameter, detail, title }) {
    const blamed = controls.find(({ name }) => name === parameter);
    if (blamed) blamed.refuse(detail ?? title);
    result.replaceChildren(...(blamed ? [] : [make("p", { class: "quiet" }, detail ?? title)]));
  }

  function show({ name, answer: schema }, answer) {
    const { model } = scene;
    const used = DRAWN[name]?.used?.(answer) ?? answer;
    for (const one of controls) one.use(used[one.name]);
    const note = NOTES[name]?.(answer, model);
    const parts = DRAWN[name]
      ? DRAWN[name].draw(answer, scene)
      : renderAnswer(schema, answer, { names: model.class_names, presence: model.presence, leave: NOTED[name] });
    return [...(note ? [make("p", { class: "lead finding" }, note)] : []), ...parts];
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
    offer(file, others.push({ load: () => shrink(file) }) - 1);
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
