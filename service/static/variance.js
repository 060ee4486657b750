/** What the poses of a network explain of images: a sentence, and a figure that is asked for when it comes into view. */

import { make } from "./dom.js";
import { share } from "./models.js";
import { complain } from "./notice.js";
import { fetchPicture } from "./samples.js";

/** The size of a figure, so that nothing moves when it comes. */
const SIZE = { width: 900, height: 375 };
const NEAR = "200px";

/**
 * @param {HTMLElement} figure the element to fill
 * @returns {(model: any) => void} what is called with each network that is chosen
 */
export function varianceFigure(figure) {
  const image = make("img", { ...SIZE, alt: "images, below them their reconstructions from poses, and those by PCA" });
  const link = make("a", { target: "_blank", title: "Open the figure" }, image);
  const [sentence, rows] = [make("p"), make("p", { class: "credit" })];
  figure.append(link, make("figcaption", {}, sentence, rows));
  const view = new IntersectionObserver((entries) => entries.some((one) => one.isIntersecting) && load(), { rootMargin: NEAR });
  let path = null;

  async function load() {
    view.disconnect();
    const wanted = path;
    try {
      const file = await fetchPicture(wanted);
      if (wanted === path) image.src = link.href = URL.createObjectURL(file);
    } catch (error) {
      if (wanted === path) link.hidden = rows.hidden = true;
      complain(error);
    }
  }

  return (model) => {
    const { explained, class_dim: size } = model;
    view.disconnect();
    URL.revokeObjectURL(image.src);
    for (const [part, address] of [[image, "src"], [link, "href"]]) part.removeAttribute(address);
    path = explained?.figure ?? null;
    figure.hidden = !explained;
    link.hidden = rows.hidden = !path;
    sentence.textContent = share(model);
    rows.textContent = `Top row: some of these images. Middle: decoded from their poses. Bottom: PCA of the same class with ${size} numbers.`;
    if (path) view.observe(link);
  };
}
