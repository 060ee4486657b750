/** The views of one picture: a tab and a panel for each, of which one is open and filled. */

import { remember } from "./address.js";
import { ask } from "./api.js";
import { explained, figureOf, find, make, NOTHING_YET } from "./dom.js";
import { latest } from "./latest.js";
import { offers, weakPoses } from "./models.js";
import { calm } from "./notice.js";
import { showEnds } from "./pose.js";
import { drawRouting } from "./routing.js";
import { drawCompare, drawSweep } from "./sweep.js";
import { tabs } from "./tabs.js";
import { drawView, panelId, panelOf } from "./views.js";

export class Lenses {
  /**
   * @param {() => any} scene what is shown, or null
   * @param {(model: any) => any[]} others the networks that a network can be compared with
   */
  constructor(scene, others) {
    this.active = "pose";
    this.others = others;
    this.model = null;
    /** By the id of a panel: `show` fills it with a scene; the view of the service behind it, and what that needs. */
    this.lenses = {
      pose: { show: showEnds, view: "decode", needs: "decode" }, // its sliders come with every scene
      sweep: { show: lens(find("sweep"), drawSweep), view: "sweep", needs: "decode" },
      routing: { show: lens(find("routing"), drawRouting), view: "routing", needs: "trace" },
      health: { show: lens(find("health"), drawHealth) },
      compare: { show: lens(find("compare"), (shown, wanted) => drawCompare(shown, others(shown.model), wanted)), view: "sweep" },
    };
    this.tabs = tabs(document.querySelector(".lenses [role=tablist]"), (panel, picked) => {
      this.active = panel;
      this.tellLimits();
      if (picked) remember({ view: panel });
      this.show(scene());
    });
  }

  /** Show a scene in the panel that is open. */
  show(scene) {
    this.lenses[this.active].show(scene);
  }

  /** Say what limits the open view of this network, where anything is known to. */
  tellLimits() {
    const notes = this.model?.notes[this.lenses[this.active].view] ?? [];
    find("limits").textContent = notes.join(" ").replaceAll(" %", "\u00a0%");
    find("limits").hidden = !notes.length;
  }

  /** Hide the tabs of what a network does not offer. */
  offer(model) {
    this.model = model;
    this.tellLimits();
    const further = { compare: this.others(model).length > 0, health: Boolean(model.health) };
    const suits = (need) => !need || (offers(model, need) && !(need === "decode" && weakPoses(model)));
    this.tabs.offer((panel) => further[panel] ?? suits(this.lenses[panel].needs));
  }

  /** Add the tab and the panel of a view, once. */
  add(view) {
    const name = panelId(view.name);
    if (this.lenses[name]) return;
    const { tab, panel } = panelOf(view);
    find("health").before(panel);
    const show = lens(panel, (shown, wanted) => drawView(view, shown, wanted));
    this.lenses[name] = { show, view: view.path.slice(1), needs: view.needs };
    this.tabs.add(tab, find("tab-health"));
  }
}

/**
 * @param {HTMLElement} panel
 * @param {(scene: any, wanted: () => boolean) => Promise<Node[]>} draw asks the service and gives what is to be seen
 * @returns {(scene: any) => void} fills the panel
 */
function lens(panel, draw) {
  let shown;

  return latest(async (scene, wanted) => {
    if (!scene) {
      shown = null;
      return panel.replaceChildren(make("p", { class: "quiet" }, NOTHING_YET));
    }
    if (scene === shown) return;
    try {
      panel.replaceChildren(...(await draw(scene, wanted)));
      shown = scene;
      calm();
    } catch (error) {
      shown = null;
      panel.replaceChildren();
      throw error;
    }
  }, panel);
}

/** @returns {Promise<Node[]>} */
async function drawHealth({ model }, wanted) {
  const drawing = await ask(`/models/${encodeURIComponent(model.name)}/health`, { accept: "image/png", wanted });
  return [
    make("p", { class: "lead" }, `Measurements of the capsules of ${model.name} on many images, not on your picture.`),
    explained("health"),
    figureOf(drawing, `the health of ${model.name}`),
  ];
}
