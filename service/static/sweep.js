/** The paper's grid: every dimension of the pose, moved step by step. */

import { ask, upload } from "./api.js";
import { make, pixels } from "./dom.js";
import { explained } from "./explained.js";
import { signed } from "./pose.js";

/** Of larger poses the usual steps would be more pictures than the service draws. */
const MOST_DIMENSIONS = 23;

/** @returns {Promise<Node[]>} */
export async function drawSweep(scene, wanted) {
  const name = scene.model.class_names[scene.target];
  const lead = `Each row moves the pose of ${name} along one direction, by standard deviations of the class. The outlined column is unchanged.`;
  return [make("p", { class: "lead" }, lead), explained("sweep"), await sweepTable(scene, wanted)];
}

/** @returns {Promise<HTMLElement>} */
export async function sweepTable({ model, picture, target }, wanted) {
  const step = model.class_dim > MOST_DIMENSIONS ? 0.125 : undefined;
  const query = { model: model.name, target, step };
  const sweep = await ask("/sweep", { query, body: upload(picture), wanted });
  const head = sweep.deltas.map((delta) => make("th", { scope: "col" }, signed(delta)));
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
