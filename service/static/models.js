/** The loaded networks and what their manifests tell. */

import { ask } from "./api.js";
import { loadSamples } from "./samples.js";

const NAMED = 10;

/** @returns {Promise<any[]>} the manifest of each, with `samples` and `default` */
export async function loadModels() {
  const { models } = await ask("/models");
  const load = async (summary) => ({
    ...(await ask(`/models/${encodeURIComponent(summary.name)}`)),
    samples: await loadSamples(summary),
    default: summary.default,
    family_title: summary.family_title,
    notes: summary.notes,
  });
  return Promise.all(models.map(load));
}

/** Whether a network was trained on overlapping digits. */
export function forPairs(model) {
  return typeof model.mask_threshold === "number";
}

/** Whether a network looks at photographs, not at strokes. */
export function forPhotos(model) {
  return model.preprocess === "crop";
}

/** Whether a network can do a thing: "decode" or "trace". */
export function offers(model, thing) {
  return model.offers.includes(thing);
}

/** Whether two networks can be asked about the same picture, class by class. */
export function comparable(one, other) {
  return one.name !== other.name && forPhotos(one) === forPhotos(other) && `${one.class_names}` === `${other.class_names}`;
}

/** The family and what the network knows, as a sentence. */
export function describe({ family_title: title, class_names: names, dataset }) {
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : "";
  const known = names.slice(0, NAMED).join(", ") + more;
  return `${title}, trained on ${dataset}: ${known}`;
}

/** What a network does not offer, as a sentence; empty where it offers all. */
export function missing(model) {
  const lacking = [
    ...(offers(model, "decode") ? [] : ["no reconstruction", "no pose", "no sweep"]),
    ...(offers(model, "trace") ? [] : ["no routing"]),
  ];
  return lacking.length ? `This network has ${lacking.join(", ").replace(/, (?=[^,]*$)/, " and ")}.` : "";
}

/** What the pose of a class explains of images, next to PCA, as a sentence; empty where that was not measured. */
export function share({ explained, class_dim: size }) {
  if (!explained) return "";
  const percent = (part) => `${Math.round(100 * part)} %`;
  return `A pose of ${size} numbers explains ${percent(explained.pose)} of the variance of images; `
    + `PCA with ${size} numbers explains ${percent(explained.pca[size])}.`;
}

/** What each dimension of a class's pose was found to do; undefined where nobody measured. */
export function dimensionMeanings(model, label) {
  const meanings = Array(model.class_dim).fill(undefined);
  for (const one of model.pose_dimensions ?? []) {
    if (one.label === label) meanings[one.dim] = one;
  }
  return meanings;
}
