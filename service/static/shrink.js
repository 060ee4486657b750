/** Pictures of more pixels than the service decodes, made smaller before they are sent. */

import { make } from "./dom.js";

/** Above this the service refuses a picture, unless it is set otherwise. */
const MOST_PIXELS = 25e6;
/** More than any network sees. */
const LONGEST = 1024;

const shrunk = new WeakMap();

/**
 * @param {Blob} file
 * @returns {Promise<Blob>} the same where it is small enough, or where this browser cannot read it
 */
export function shrink(file) {
  if (!shrunk.has(file)) shrunk.set(file, smallerOf(file));
  return shrunk.get(file);
}

async function smallerOf(file) {
  const image = make("img", { src: URL.createObjectURL(file) });
  try {
    await image.decode();
    const { naturalWidth: width, naturalHeight: height } = image;
    if (width * height <= MOST_PIXELS) return file;
    const share = LONGEST / Math.max(width, height);
    const canvas = make("canvas", { width: Math.round(width * share), height: Math.round(height * share) });
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    const smaller = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    return new File([smaller], file.name ?? "picture.png", { type: "image/png" });
  } catch {
    return file; // the service says what is wrong with it
  } finally {
    URL.revokeObjectURL(image.src);
  }
}
