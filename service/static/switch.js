/** Routing switched off: what the same votes say with other couplings. */

import { recall, remember } from "./address.js";
import { ask, upload } from "./api.js";
import { make } from "./dom.js";
import { latest } from "./latest.js";
import { stillBars } from "./lengths.js";
import { complain } from "./notice.js";

/** The answer, measured on whole test splits. */
const MEASURED = "/documentation/results.html#does-routing-matter";

/**
 * A switch, and bars for each kind of couplings while it is off.
 *
 * @param {any} model
 * @param {Blob} picture
 * @param {number} [iterations] of the network's routing
 * @returns {HTMLElement}
 */
export function routingSwitch(model, picture, iterations = 1) {
  const box = make("input", { type: "checkbox", role: "switch", checked: recall("routing") !== "off" });
  const answer = make("div", { class: "switched", "aria-live": "polite" });
  const fill = latest(async (_, wanted) => {
    if (box.checked) return answer.replaceChildren();
    const off = await ask("/routing-off", { query: { model: model.name }, body: upload(picture), wanted });
    answer.replaceChildren(...variants(model, off, iterations));
  }, complain);
  box.addEventListener("change", () => {
    remember({ routing: box.checked ? null : "off" });
    fill();
  });
  fill();
  const measured = make("a", { href: MEASURED }, "Does routing matter?");
  const label = make("label", {}, box, " routing");
  return make("div", { class: "switch" }, label, make("p", { class: "quiet" }, measured), answer);
}

/** The iteration that has the same numbers, by variant, where the network routes by agreement. */
const ITERATIONS = { uniform: 1, "one-iteration": 2 };

function variants(model, { variants: found, changed }, iterations) {
  const same = (name) => (iterations > 1 && model.family === "dynamic" && ITERATIONS[name] ? ` (iteration ${ITERATIONS[name]})` : "");
  const all = found.map((one) => ({ ...one, title: `${one.title}${same(one.name)}` }));
  const said = all.map(({ title, class_names: names }) => `${title}: ${names.join(" and ")}`).join("; ");
  const end = changed ? "The answer changes" : "The answer stays";
  const figures = all.map(({ title, labels, lengths }) =>
    make("figure", {}, make("figcaption", {}, title), stillBars(model, { labels, lengths })),
  );
  return [make("p", { class: "lead" }, `${end}: ${said}.`), make("div", { class: "variants" }, ...figures)];
}
