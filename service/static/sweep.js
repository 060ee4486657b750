/** A grid of moved poses, and the same of two networks side by side. */

import { recall, remember } from "./address.js";
import { ask, upload } from "./api.js";
import { explained, make, pixels } from "./dom.js";
import { latest } from "./latest.js";
import { stillBars } from "./lengths.js";
import { directionsOf, offers } from "./models.js";
import { signed } from "./pose.js";

/** Of larger poses the usual steps would be more pictures than the service draws. */
const MOST_DIMENSIONS = 23;

/** @returns {Promise<Node[]>} */
export async function drawSweep(scene, wanted) {
  const name = scene.model.class_names[scene.target];
  const sweep = await askSweep(scene, wanted);
  const row = sweep.by === "direction" ? "from a low value to a high value of one direction" : "in one dimension";
  const lead = `Each row moves the pose of ${name} ${row}. The outlined column is unchanged.`;
  return [make("p", { class: "lead" }, lead), explained("sweep"), sweepTable(sweep, scene.model)];
}

/** @returns {Promise<object>} */
function askSweep({ model, picture, target }, wanted) {
  const moves = directionsOf(model, target).length > 0;
  const step = !moves && model.class_dim > MOST_DIMENSIONS ? 0.125 : undefined;
  return ask("/sweep", { query: { model: model.name, target, step }, body: upload(picture), wanted });
}

/** @returns {HTMLElement} */
function sweepTable(sweep, model) {
  const head = sweep.deltas.map((delta) => make("th", { scope: "col" }, sweep.by === "direction" ? "" : signed(delta)));
  const middle = (column) => (sweep.deltas[column] === 0 ? "unmoved" : null);
  const rows = sweep.images.map((images, row) => {
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, sweep.rows[row]),
      ...images.map((image, column) => make("td", { class: middle(column) }, pixels(image))),
    );
  });
  return make(
    "table",
    { class: "sweep" },
    make("caption", { class: "unseen" }, `Reconstructions of a ${sweep.class_name} by row and change: ${model.name}`),
    make("thead", {}, make("tr", {}, make("td"), ...head)),
    make("tbody", {}, ...rows),
  );
}

/**
 * @param {any} scene
 * @param {any[]} others the networks to compare with
 * @param {() => boolean} wanted
 * @returns {Promise<Node[]>}
 */
export async function drawCompare(scene, others, wanted) {
  const result = make("div", { class: "compare" });
  const choice = make("select", { id: "other" }, ...others.map(({ name }) => make("option", { value: name }, name)));
  choice.value = (others.find(({ name }) => name === recall("other")) ?? others[0]).name;
  const fill = latest(async (_, newest) => {
    const other = others.find(({ name }) => name === choice.value);
    const both = await Promise.all([scene.model, other].map((model) => column(model, scene, () => wanted() && newest())));
    result.replaceChildren(...both.map(([top]) => top), ...both.map(([, sweep]) => sweep));
  }, result);
  choice.addEventListener("change", () => {
    remember({ other: choice.value });
    fill();
  });
  await fill();
  return [
    make("p", { class: "lead" }, "This tab compares two networks on the same picture: lengths, reconstruction and sweep."),
    explained("compare"),
    make("p", { class: "choice" }, make("label", { for: "other" }, `${scene.model.name} and`), " ", choice),
    result,
  ];
}

/** What one network makes of the picture: the part to be seen next to the other's, and its sweep. */
async function column(model, { picture, target }, wanted) {
  const query = { model: model.name };
  const decodes = offers(model, "decode");
  const [answer, decoded, sweep] = await Promise.all([
    ask("/classify", { query, body: upload(picture), wanted }),
    decodes && ask("/reconstruct", { query: { ...query, target }, body: upload(picture), wanted }),
    decodes && askSweep({ model, picture, target }, wanted),
  ]);
  const [prediction] = answer.predictions;
  const { class_name: name, length } = prediction;
  const image = decoded && pixels(decoded.reconstruction, `reconstruction of class ${decoded.class_name} by ${model.name}`);
  const top = make(
    "section",
    { "aria-label": model.name },
    make("h3", {}, model.name),
    make("p", { class: "verdict" }, make("strong", {}, name), make("span", { class: "quiet" }, `${model.presence} ${length.toFixed(2)}`)),
    image ? make("div", { class: "paper" }, image) : make("p", { class: "quiet" }, "This network has no reconstruction and no sweep."),
    make("p", { class: "quiet" }, decoded ? `class ${decoded.class_name}, mean squared error ${decoded.error.toFixed(3)}` : ""),
    stillBars(model, prediction),
  );
  return [top, make("div", {}, ...(sweep ? [make("h3", { "aria-hidden": "true" }, `Sweep: ${model.name}`), sweepTable(sweep, model)] : []))];
}
