/** The loaded networks and what their manifests tell. */

import { ask } from "./api.js";
import { loadSamples } from "./samples.js";

const NAMED = 10;

/** @returns {Promise<any[]>} the manifest of each, with its samples and what only the list of models says */
export async function loadModels() {
  const { models } = await ask("/models");
  const load = async (summary) => {
    const manifest = await ask(`/models/${encodeURIComponent(summary.name)}`);
    const { directions } = manifest;
    return { ...manifest, ...summary, directions, offered: summary.directions, samples: await loadSamples(summary) };
  };
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

/** Whether a network looks at arrays: only those with as many channels suit it. */
export function forArrays({ channels }) {
  return channels !== 1 && channels !== 3;
}

/** What to do for a prediction, in words. */
export function invitation(model) {
  if (!forPhotos(model)) return "draw, drop or paste";
  return forArrays(model) ? `choose or drop an array of ${model.channels} channels (.npy)` : "choose, drop or paste a picture";
}

/** Whether a network can do a thing: "decode" or "trace". */
export function offers(model, thing) {
  return model.offers.includes(thing);
}

/** Whether two networks can be asked about the same picture, class by class. */
export function comparable(one, other) {
  const kinds = [one, other].map((model) => [forPhotos(model), forArrays(model) && model.channels, model.class_names]);
  return one.name !== other.name && `${kinds[0]}` === `${kinds[1]}`;
}

/** The family and what the network knows, as a sentence. */
export function describe({ family_title: title, class_names: names, dataset }) {
  const more = names.length > NAMED ? ` and ${names.length - NAMED} more` : "";
  const known = names.slice(0, NAMED).join(", ") + more;
  return `${title}, trained on ${dataset}: ${known}`;
}

/** Whether poses carry less than half of what the pictures show, so that drawing them says little. */
export function weakPoses({ explained }) {
  return Boolean(explained) && explained.pose < 0.5;
}

/** What a network does not offer, as a sentence; empty where it offers all. */
export function missing(model) {
  if (weakPoses(model)) {
    return `A pose of this network explains ${Math.round(100 * model.explained.pose)}\u00a0% of the variance of its pictures, so there are no sliders, and no tabs that draw poses. `
      + "To improve it, train with more pictures of each class. For photographs, train with --stem pretrained.";
  }
  const lacking = [
    ...(offers(model, "decode") ? [] : ["no reconstruction", "no pose", "no sweep"]),
    ...(offers(model, "trace") ? [] : ["no routing"]),
  ];
  return lacking.length ? `This network has ${lacking.join(", ").replace(/, (?=[^,]*$)/, " and ")}.` : "";
}

/** What a pose explains of images, next to PCA of the same class, as a sentence; empty where it was not measured. */
export function share(model) {
  const { explained, class_dim: size } = model;
  if (!explained) return "";
  const percent = (part) => `${Math.round(100 * part)}\u00a0%`;
  const images = `${explained.count.toLocaleString("en")} ${forPairs(model) ? "single digits in pairs made " : ""}${explained.images}`;
  return `Measured on ${images}: reconstructions from a pose of ${size} numbers explain ${percent(explained.pose)} of the variance. `
    + `PCA of the class with ${size} components explains ${percent(explained.pca[size])}.`;
}

/** The directions of a class's pose that are offered. */
export function directionsOf({ directions, offered }, label) {
  const labels = new Map(offered.map((one) => [one.name, one.labels]));
  return directions.filter((one) => one.label === label && labels.get(one.name)?.includes(label));
}
