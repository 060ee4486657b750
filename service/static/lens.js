/** A panel that is filled from the service when it is looked at. */

import { make, NOTHING_YET } from "./dom.js";
import { latest } from "./latest.js";
import { calm, complain } from "./notice.js";

/**
 * @param {HTMLElement} panel
 * @param {(scene: any, wanted: () => boolean) => Promise<Node[]>} draw asks the service and gives what is to be seen
 * @returns {{show: (scene: any) => void}}
 */
export function lens(panel, draw) {
  let shown;

  const fill = latest(async (scene, wanted) => {
    if (!scene) return empty();
    if (scene === shown) return;
    panel.setAttribute("aria-busy", "true");
    try {
      panel.replaceChildren(...(await draw(scene, wanted)));
      shown = scene;
      calm();
    } catch (error) {
      shown = null;
      panel.replaceChildren();
      throw error;
    } finally {
      panel.removeAttribute("aria-busy");
    }
  }, complain);

  function empty() {
    shown = null;
    panel.replaceChildren(make("p", { class: "quiet" }, NOTHING_YET));
  }

  return { show: fill };
}
