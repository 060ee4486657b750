/** The loaded networks and what their manifests tell. */

import { ask } from "./api.js";

/** @returns {Promise<any[]>} the manifest of each, with `default` */
export async function loadModels() {
  const { models } = await ask("/models");
  const load = async (summary) => ({
    ...(await ask(`/models/${encodeURIComponent(summary.name)}`)),
    default: summary.default,
  });
  return Promise.all(models.map(load));
}

/** Whether a network was trained on overlapping digits. */
export function forPairs(model) {
  return typeof model.mask_threshold === "number";
}

/** What each dimension of a class's pose was found to do; undefined where nobody measured. */
export function dimensionMeanings(model, label) {
  const meanings = Array(model.class_dim).fill(undefined);
  for (const one of model.pose_dimensions ?? []) {
    if (one.label === label) meanings[one.dim] = one;
  }
  return meanings;
}
