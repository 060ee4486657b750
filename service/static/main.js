/** Wires the page: networks, tabs, address and tour. */

import { link, onTravel, recall, remember } from "./address.js";
import { offerModels, pad, restoreDigit } from "./digit.js";
import { find } from "./dom.js";
import { takeFiles } from "./files.js";
import { forPairs, loadModels } from "./models.js";
import { calm, complain, pause, tell } from "./notice.js";
import { OWN_FILE } from "./pad.js";
import { pairPads } from "./pair.js";
import { tabs } from "./tabs.js";
import { offerTour } from "./tour.js";
import { loadViews } from "./views.js";

const RETRY_S = 3;

const taskList = find("tasks");
const tasks = tabs(taskList, (panel, picked) => {
  for (const part of [find("model"), find("model-label")]) part.hidden = panel !== "digit";
  if (picked) remember({ tab: panel });
  if (panel === "pair") showPair();
});

async function start() {
  const [models, views] = await Promise.all([loadModels(), loadViews()]);
  const found = { digit: models.filter((model) => !forPairs(model)), pair: models.filter(forPairs) };
  taskList.hidden = Object.values(found).some((some) => !some.length);
  tasks.offer((panel) => found[panel].length);
  tasks.open(recall("tab"));
  await offerModels(found.digit, views);
  return found;
}

async function startUntilItWorks() {
  for (;;) {
    try {
      const found = await start();
      calm();
      return found;
    } catch (error) {
      complain(error);
      await pause(RETRY_S);
    }
  }
}

const { pads, restorePair, showPair } = pairPads(find("pair"), startUntilItWorks());
takeFiles([pad, ...pads]);
onTravel(() => {
  tasks.open(recall("tab"));
  restoreDigit();
  restorePair();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address holds what is shown
  document.querySelector("main > :not([hidden])").focus();
});
offerTour();

const PICTURES = ["image", "first", "second"];

find("copy-link").addEventListener("click", async () => {
  const left = PICTURES.some((name) => recall(name) === OWN_FILE);
  const but = left ? "Your file is not included: links hold only samples and drawings. " : "";
  try {
    await navigator.clipboard.writeText(link());
    tell("Link copied.", but);
  } catch {
    history.replaceState(null, "", link()); // no clipboard without HTTPS
    tell("The link is in the address bar.", but);
  }
});
