/** Sample pictures: what a network brings, and the files. */

import { ask } from "./api.js";

const files = new Map();

/**
 * @typedef {{id: string, name: string, path: string, label?: number, credit: string}} Sample `id` in addresses, `credit` who made it
 * @param {{name: string, dataset: string}} model
 * @returns {Promise<Sample[]>} the samples of a network; those of one class are numbered
 */
export async function loadSamples({ name: model, dataset }) {
  const path = `/models/${encodeURIComponent(model)}/samples`;
  const { samples } = await ask(path);
  const counts = {};
  return samples.map(({ file, label, class_name: name, licence, source }) => {
    counts[name] = (counts[name] ?? 0) + 1;
    return {
      id: `${dataset}-${file.replace(/\.png$/, "")}`,
      name: counts[name] > 1 ? `${name} ${counts[name]}` : name,
      path: `${path}/${encodeURIComponent(file)}`,
      label,
      credit: `${source}, ${licence}`,
    };
  });
}

/** The digits that the service has whatever its networks. @type {Sample[]} */
export const DIGITS = [..."0123456789"].map((name) => ({
  id: `mnist-${name}`,
  name,
  path: `/samples/${name}.png`,
  credit: "MNIST, training split, CC BY-SA 3.0",
}));

/** Which of some samples the page opens with, if there are any. @param {Sample[]} samples */
export function openingOf(samples) {
  return samples[Math.floor(samples.length / 2)]?.id;
}

/** @param {Sample} sample @returns {Promise<Blob>} its picture, which is asked for once */
export function fetchSample({ path }) {
  if (!files.has(path)) {
    const file = ask(path, { accept: "image/png" });
    files.set(path, file);
    file.catch(() => files.delete(path));
  }
  return files.get(path);
}
