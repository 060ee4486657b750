/** The views of one picture: a tab and a panel for each, of which one is open and filled. */

import { remember } from "./address.js";
import { ask } from "./api.js";
import { figureOf, find, make, NOTHING_YET } from "./dom.js";
import { latest } from "./latest.js";
import { offers, weakPoses } from "./models.js";
import { calm, complain } from "./notice.js";
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
    /** The view of the service behind each panel. */
    this.views = { pose: "decode", sweep: "sweep", routing: "routing", compare: "sweep" };
    this.model = null;
    this.needs = { pose: "decode", sweep: "decode", routing: "trace" };
    this.lenses = {
      pose: { show: showEnds }, // its sliders come with every scene
      sweep: lens(find("sweep"), drawSweep),
      routing: lens(find("routing"), drawRouting),
      health: lens(find("health"), drawHealth),
      compare: lens(find("compare"), (shown, wanted) => drawCompare(shown, others(shown.model), wanted)),
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

  /** Open the panel of that name, if there is one. */
  open(name) {
    this.tabs.open(name);
  }

  /** Say what limits the open view of this network, where anything is known to. */
  tellLimits() {
    const notes = this.model?.notes[this.views[this.active]] ?? [];
    find("limits").textContent = notes.join(" ").replaceAll(" %", "\u00a0%");
    find("limits").hidden = !notes.length;
  }

  /** Hide the tabs of what a network does not offer. */
  offer(model) {
    this.model = model;
    this.tellLimits();
    const further = { compare: this.others(model).length > 0, health: Boolean(model.health) };
    const suits = (need) => !need || (offers(model, need) && !(need === "decode" && weakPoses(model)));
    this.tabs.offer((panel) => further[panel] ?? suits(this.needs[panel]));
  }

  /** Add the tab and the panel of a view, once. */
  add(view) {
    const name = panelId(view.name);
    if (this.lenses[name]) return;
    const { tab, panel } = panelOf(view);
    find("health").before(panel);
    this.tabs.add(tab, find("tab-health"));
    this.needs[name] = view.needs;
    this.views[name] = view.path.slice(1);
    this.lenses[name] = lens(panel, (shown, wanted) => drawView(view, shown, wanted));
  }
}

/**
 * @param {HTMLElement} panel
 * @param {(scene: any, wanted: () => boolean) => Promise<Node[]>} draw asks the service and gives what is to be seen
 * @returns {{show: (scene: any) => void}}
 */
function lens(panel, draw) {
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

const DEFINITIONS = "/documentation/explanation/health.html";

/** @returns {Promise<Node[]>} */
async function drawHealth({ model }, wanted) {
  const drawing = await ask(`/models/${encodeURIComponent(model.name)}/health`, { accept: "image/png", wanted });
  return [
    make("p", { class: "lead" }, `How the capsules of ${model.name} work. The numbers belong to the network, not to your picture.`),
    make("p", { class: "explained" }, make("a", { href: DEFINITIONS }, "How to read this")),
    figureOf(drawing, `the health of ${model.name}`),
  ];
}
