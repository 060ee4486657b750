/** Links from a lens to the paragraph of the documentation that says how to read it. */

import { make } from "./dom.js";

const VIEWS = "/documentation/explanation/views.html";
/** The paragraphs of that page by view. */
const PARAGRAPHS = {
  pose: "sweeps-what-does-a-pose-dimension-do",
  sweep: "sweeps-what-does-a-pose-dimension-do",
  routing: "routing-who-agreed",
  equivariance: "equivariance-does-the-pose-follow-the-image",
  occlusion: "occlusion-which-ink-matters",
  rivals: "rivals-why-not-another-class",
  neighbours: "neighbours-what-does-it-look-like-to-the-network",
  morph: "morph-what-lies-between-two-poses",
  compare: "compare-what-do-two-networks-make-of-one-image",
  segment: "two-digits-which-strokes-belong-to-which",
};

/** @param {string} view @returns {HTMLElement} a line with a link; the page's top for a view without a paragraph */
export function explained(view) {
  const paragraph = PARAGRAPHS[view];
  const href = paragraph ? `${VIEWS}#${paragraph}` : VIEWS;
  return make("p", { class: "explained" }, make("a", { href }, "How to read this"));
}
