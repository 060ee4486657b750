/** Training images that look alike to the network, next to the prediction. */

import { ask, upload } from "./api.js";
import { find, make, pixels } from "./dom.js";
import { latest } from "./latest.js";
import { offers } from "./models.js";
import { complain } from "./notice.js";

const COUNT = 5;
const place = find("near");

/** @type {(scene: any) => Promise<void>} shows those of what is looked at; none where the bundle brings no images */
export const showNeighbours = latest(async (scene, wanted) => {
  if (!scene || !offers(scene.model, "neighbours")) return place.replaceChildren();
  const { model, target, picture } = scene;
  const query = { model: model.name, target, count: COUNT };
  const { neighbours, class_name: name, drawn } = await ask("/neighbours", { query, body: upload(picture), wanted });
  if (!wanted()) return;
  const title = `Nearest training images of ${name}${drawn ? ", drawn from their poses" : ""}`;
  const images = neighbours.map(({ image, distance }) => {
    const alt = `at distance ${distance.toFixed(1)}`;
    return make("div", { class: "paper", title: alt }, pixels(image, alt));
  });
  place.replaceChildren(make("p", { class: "quiet" }, title), make("div", { class: "row" }, ...images));
}, complain);
