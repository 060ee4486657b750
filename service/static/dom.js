/** Making and finding elements. */

/** What a panel says that has no picture. */
export const NOTHING_YET = "Nothing to show yet: draw or choose a picture.";

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
export function find(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no element #${id}`);
  return element;
}

/**
 * An element with attributes and children; listeners are attributes that start with "on".
 *
 * @param {string} name
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Node | string)} children
 * @returns {any} the element
 */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null) element.setAttribute(key, String(value));
  }
  element.append(...children);
  return element;
}

/** @param {string} text of the API document @returns {string} without the marks of code */
export function unmarked(text) {
  return text.replace(/`/g, "");
}

/** An <img> of a picture of the network: whole pixels, light or dark as the page is. */
export function pixels(source, alt = "") {
  return make("img", { class: "pixels", src: source, alt });
}

/** A figure that the service has drawn, on white. @param {Blob} drawing @param {string} alt */
export function figureOf(drawing, alt) {
  const image = make("img", { src: URL.createObjectURL(drawing), alt, onload: () => URL.revokeObjectURL(image.src) });
  return make("div", { class: "drawn" }, image);
}

/** Show a picture in an <img> that is hidden while there is none. */
export function show(image, source, alt) {
  image.hidden = !source;
  if (source) image.src = source;
  else image.removeAttribute("src");
  image.alt = alt ?? "";
}

/** What the documentation says of each view. */
const EXPLANATIONS = {
  pose: "views.html#sweeps-what-does-a-pose-dimension-do",
  sweep: "views.html#sweeps-what-does-a-pose-dimension-do",
  routing: "views.html#routing-who-agreed",
  equivariance: "views.html#equivariance-does-the-pose-follow-the-image",
  occlusion: "views.html#occlusion-which-ink-matters",
  rivals: "views.html#rivals-why-not-another-class",
  neighbours: "views.html#neighbours-what-does-it-look-like-to-the-network",
  morph: "views.html#morph-what-lies-between-two-poses",
  compare: "views.html#compare-what-do-two-networks-make-of-one-image",
  segment: "views.html#two-digits-which-strokes-belong-to-which",
  health: "health.html",
};

/** @param {string} view @returns {HTMLElement} a line with a link; the top of the page of views for an unknown one */
export function explained(view) {
  const href = `/documentation/explanation/${EXPLANATIONS[view] ?? "views.html"}`;
  return make("p", { class: "explained" }, make("a", { href }, "How to read this"));
}
