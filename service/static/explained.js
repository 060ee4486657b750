/** Links from a lens to the paragraph of the documentation that says how to read it. */

import { make } from "./dom.js";

const VIEWS = "/documentation/explanation/views.html";
/** The paragraphs of that page by view. */
const PARAGRAPHS = {
  pose: "pose-what-does-a-dimension-do",
  sweep: "pose-what-does-a-dimension-do",
  routing: "routing-which-capsules-agreed",
  routing_off: "routing-off-did-routing-decide",
  equivariance: "equivariance-does-the-pose-follow-the-image",
  occlusion: "occlusion-which-strokes-matter",
  rivals: "rivals-why-not-another-class",
  neighbours: "neighbours-which-training-images-are-near",
  morph: "morph-what-lies-between-two-poses",
  segment: "two-digits-which-strokes-belong-to-which",
};

/** @param {string} view @returns {HTMLElement} a line with a link; the page's top for a view without a paragraph */
export function explained(view) {
  const paragraph = PARAGRAPHS[view];
  const href = paragraph ? `${VIEWS}#${paragraph}` : VIEWS;
  return make("p", { class: "explained" }, make("a", { href }, "How to read this"));
}
