/** A grid of moved poses: along directions where the class has any, or in every dimension as in the paper. */

import { ask, upload } from "./api.js";
import { make, pixels } from "./dom.js";
import { explained } from "./explained.js";
import { directionsOf } from "./models.js";
import { signed } from "./pose.js";

/** Of larger poses the usual steps would be more pictures than the service draws. */
const MOST_DIMENSIONS = 23;

/** @returns {Promise<Node[]>} */
export async function drawSweep(scene, wanted) {
  const name = scene.model.class_names[scene.target];
  const sweep = await askSweep(scene, wanted);
  const row = sweep.by === "direction" ? "along one direction, from end to end of the class" : "in one dimension";
  const lead = `Each row moves the pose of ${name} ${row}. The outlined column is unchanged.`;
  return [make("p", { class: "lead" }, lead), explained("sweep"), sweepTable(sweep, scene.model)];
}

/** @returns {Promise<object>} */
export function askSweep({ model, picture, target }, wanted) {
  const moves = directionsOf(model, target).length > 0;
  const step = !moves && model.class_dim > MOST_DIMENSIONS ? 0.125 : undefined;
  return ask("/sweep", { query: { model: model.name, target, step }, body: upload(picture), wanted });
}

/** @returns {HTMLElement} */
export function sweepTable(sweep, model) {
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
