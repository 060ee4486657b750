/** Health: how a network's capsules work, measured once on many images; the same for every picture. */

import { ask } from "./api.js";
import { figureOf, make } from "./dom.js";

const DEFINITIONS = "/documentation/explanation/health.html";

/** @returns {Promise<Node[]>} */
export async function drawHealth({ model }, wanted) {
  const drawing = await ask(`/models/${encodeURIComponent(model.name)}/health`, { accept: "image/png", wanted });
  return [
    make("p", { class: "lead" }, `How the capsules of ${model.name} work. The numbers belong to the network, not to your picture.`),
    make("p", { class: "explained" }, make("a", { href: DEFINITIONS }, "How to read this")),
    figureOf(drawing, `the health of ${model.name}`),
  ];
}
