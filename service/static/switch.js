/** Routing switched off: what the same votes say with other couplings. */

import { recall, remember } from "./address.js";
import { ask, upload } from "./api.js";
import { figureOf, make } from "./dom.js";
import { latest } from "./latest.js";
import { complain } from "./notice.js";

/** The answer, measured on whole test splits. */
const MEASURED = "/documentation/results.html#does-routing-matter";

/** A switch, and the service's figure of each kind of couplings while it is off. @returns {HTMLElement} */
export function routingSwitch(model, picture) {
  const box = make("input", { type: "checkbox", role: "switch", checked: recall("routing") !== "off" });
  const answer = make("div", { class: "switched", "aria-live": "polite" });
  const fill = latest(async (_, wanted) => {
    if (box.checked) return answer.replaceChildren();
    const query = { model: model.name };
    const drawing = await ask("/routing-off", { query, body: upload(picture), accept: "image/png", wanted });
    answer.replaceChildren(figureOf(drawing, "the answer with other couplings"));
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
