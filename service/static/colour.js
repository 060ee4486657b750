/** Grey pictures of the network, in colour and laid over one another. */

import { make } from "./dom.js";

const COLOURS = [
  [255, 122, 89],
  [64, 196, 208],
]; // warm and cold; light grey where they meet, and apart for all kinds of colour vision

/**
 * @param {string[]} sources pictures of one size
 * @param {number} first place of the first one's colour
 * @returns {Promise<HTMLCanvasElement>} their sum, each in its colour
 */
export async function paint(sources, first) {
  const images = await Promise.all(sources.map(load));
  const { width, height } = images[0];
  const canvas = make("canvas", { width, height, role: "img", class: "blocks" });
  const sum = new ImageData(width, height);
  images.forEach((image, place) => add(sum.data, read(image), COLOURS[(first + place) % COLOURS.length]));
  canvas.getContext("2d").putImageData(sum, 0, 0);
  return canvas;
}

async function load(source) {
  const image = make("img", { src: source });
  await image.decode();
  return image;
}

function read(image) {
  const context = make("canvas", { width: image.width, height: image.height }).getContext("2d");
  context.drawImage(image, 0, 0);
  return context.getImageData(0, 0, image.width, image.height).data;
}

function add(sum, grey, colour) {
  for (let place = 0; place < sum.length; place += 4) {
    colour.forEach((strength, channel) => {
      sum[place + channel] += (strength * grey[place]) / 255; // clamped: at most 255
    });
    sum[place + 3] = 255;
  }
}
