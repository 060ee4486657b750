/** Health: how a network's capsules work, measured once on many images; the same for every picture. */

import { ask } from "./api.js";
import { make } from "./dom.js";

const DEFINITIONS = "/documentation/explanation/health.html";
/** Below this, couplings are as good as uniform, or as good as the same for all images. */
const HARDLY = 0.05;

/** @returns {Promise<Node[]>} */
export async function drawHealth({ model }, wanted) {
  const health = await ask(`/models/${encodeURIComponent(model.name)}/health`, { wanted });
  const readings = health.couplings.flatMap(readingsOf);
  return [
    make("p", { class: "lead" }, `How the capsules of ${model.name} work. The numbers belong to the network, not to your picture: they were measured on ${health.count} ${health.images}.`),
    make("p", { class: "explained" }, make("a", { href: DEFINITIONS }, "How to read this")),
    ...readings.map((reading) => make("p", { class: "lead finding" }, reading)),
    make(
      "div",
      { class: "result health" },
      ...health.couplings.map((layer) => couplings(layer)),
      capsules(health.capsules),
      poses(health, model.explained),
    ),
  ];
}

/** What the couplings of a layer say about its routing, where they say something plain. */
function readingsOf({ layer, polarisation, within_class: within }) {
  const last = polarisation.at(-1);
  return [
    ...(last < HARDLY ? [`The couplings to ${layer} stay nearly uniform: each capsule divides its votes evenly among the capsules of the next layer.`] : []),
    ...(within < HARDLY ? [`The couplings to ${layer} hardly differ between images of one class: this routing is close to a fixed average of the votes.`] : []),
  ];
}

function couplings({ layer, entropy, polarisation, within_class: within, between_classes: between }) {
  const many = entropy.length > 1;
  const each = (name, values) => values.map((value, step) => measure(many ? `${name}, iteration ${step + 1}` : name, value));
  return section(`Couplings to ${layer}`, "Entropy is 1 and polarisation 0 where a capsule divides its votes evenly among the capsules of the next layer. A spread is a standard deviation, as a share of the mean coupling.", [
    ...each("entropy", entropy),
    ...each("polarisation", polarisation),
    measure("spread within a class", within),
    measure("spread between classes", between),
  ]);
}

function capsules(layers) {
  return section("Capsules", "A starved capsule is present in none of the images.", layers.flatMap((layer) => [
    measure(`${layer.layer}: starved`, layer.starved_percent / 100, `${round(layer.starved_percent)} % of ${layer.capsules}`),
    measure(`${layer.layer}: mean presence`, layer.mean_presence),
  ]));
}

function poses(health, explained) {
  const { parse_trees: trees, images_per_class: images, effective_dims: dims, class_dim: numbers } = health;
  const { negated_changed_percent: changed, negated_presence_change: change } = health;
  const negated = changed === null ? [] : [
    measure("answers that change if all input capsules change their sign", changed / 100, `${round(changed)} %`),
    measure("mean change of presence after that change of sign", change),
  ];
  const drawn = explained ? [
    measure("explained by the pose", explained.pose),
    ...(explained.pca[numbers] === undefined ? [] : [measure(`explained by PCA of its class with ${numbers} numbers`, explained.pca[numbers])]),
  ] : [];
  return section("Parse trees and poses", explained ? "Explained: the share of the variance of images that the reconstructions reproduce." : "", [
    measure("different parse trees of a class", trees / images, `${round(trees)} in ${round(images)} images`),
    ...negated,
    measure("effective dimensions of a pose", dims / numbers, `${round(dims)} of ${numbers}`),
    ...drawn,
  ]);
}

function section(title, text, rows) {
  const table = make("table", { class: "measures", "aria-label": title }, make("tbody", {}, ...rows));
  return make("section", {}, make("h3", {}, title), ...(text ? [make("p", { class: "quiet" }, text)] : []), table);
}

/** A number with its name and, as far as it is a share, a bar. */
function measure(name, share, words = share.toFixed(3)) {
  const fill = make("span", { class: "fill" });
  fill.style.setProperty("--length", Math.min(Math.max(share, 0), 1).toFixed(4));
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, name),
    make("td", { class: "track-cell", "aria-hidden": "true" }, make("span", { class: "track" }, fill)),
    make("td", { class: "value" }, words),
  );
}

function round(value) {
  return String(Math.round(10 * value) / 10);
}
