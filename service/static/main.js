/** Wires the page: a picture goes to the service, its answers to the parts of the page. */

import { ask, pause, upload } from "./api.js";
import { find, make, show } from "./dom.js";
import { latest } from "./latest.js";
import { markTarget, showClasses, showPrediction } from "./lengths.js";
import { lens } from "./lens.js";
import { describe, dimensionMeanings, forPairs, forPhotos, loadModels, missing, offers } from "./models.js";
import { calm, complain } from "./notice.js";
import { Pad, takePastes } from "./pad.js";
import { pairPads } from "./pair.js";
import { decoder, hidePose, showMini, showPose } from "./pose.js";
import { drawRouting } from "./routing.js";
import { drawSweep } from "./sweep.js";
import { tabs } from "./tabs.js";
import { drawWalk } from "./walk.js";

const GLANCE_MS = 150;
const RETRY_S = 3;
/** Data sets of which the service has samples. */
const SAMPLED = new Set(["mnist", "fashion-mnist"]);
const whole = find("digit");
const modelChoice = /** @type {HTMLSelectElement} */ (find("model"));
const targetChoice = /** @type {HTMLSelectElement} */ (find("target"));
const imagined = /** @type {HTMLImageElement} */ (find("imagined"));
const fitted = /** @type {HTMLImageElement} */ (find("fitted"));

const pad = new Pad(find("pad"), { name: "Digit", fail: complain });
const lenses = {
  pose: { show: placeSliders },
  sweep: lens(find("sweep"), drawSweep),
  routing: lens(find("routing"), drawRouting),
  walk: lens(find("walk"), drawWalk),
};
const [tasks, lookCloser] = document.querySelectorAll("[role=tablist]");
const decode = decoder((image, { scene: moved }) => {
  calm();
  if (moved === scene) showImagined(image, imagined.alt);
}, complain);

let models = [];
/**
 * What is looked at: {model, picture, prediction, target}, with {decoded, input} where the network has poses;
 * null while there is nothing.
 */
let scene = null;
let active = "pose";
let glancing = null;
const views = tabs(lookCloser, (panel) => {
  active = panel;
  lenses[active].show(scene);
});

const look = latest(async ({ model, target, settled }, wanted) => {
  if (pad.empty) {
    calm();
    return showScene(null);
  }
  const query = { model: model.name };
  const poses = offers(model, "decode") || undefined;
  const known = poses && model.novelty ? true : undefined;
  try {
    const picture = await pad.picture();
    const [answer, decoded] = await Promise.all([
      ask("/classify", { query: { ...query, poses, known }, body: upload(picture), wanted }),
      poses && ask("/reconstruct", { query: { ...query, target }, body: upload(picture), wanted }),
    ]);
    if (model !== chosenModel()) return;
    calm();
    const [prediction] = answer.predictions;
    const shown = decoded?.label ?? target ?? prediction.label;
    showScene({ model, picture, prediction, decoded, input: decoded?.input, target: shown }, settled);
  } catch (error) {
    showScene(null);
    throw error;
  }
}, complain);

function showScene(next, settled = true) {
  scene = next;
  showPrediction(scene?.prediction ?? null);
  markTarget(scene?.target);
  const { decoded } = scene ?? {};
  showImagined(decoded?.reconstruction, decoded && `what it imagined: a ${decoded.class_name}`);
  show(fitted, decoded?.input, "the picture, made to look like those of the training");
  find("error").textContent = decoded ? `mean sq. error ${decoded.error.toFixed(3)}` : "";
  targetChoice.disabled = !scene;
  if (scene) targetChoice.value = String(scene.target);
  if (settled) lenses[active].show(scene);
}

function showImagined(image, alt) {
  show(imagined, image, alt);
  showMini(image);
}

function placeSliders(next) {
  if (!next) return hidePose();
  const { model, prediction, target } = next;
  const draw = (pose) => decode({ model: model.name, label: target, pose, scene: next });
  showPose(prediction.poses[target], dimensionMeanings(model, target), draw);
}

function chosenModel() {
  return models.find((model) => model.name === modelChoice.value);
}

function lookAgain({ target, settled = true } = {}) {
  const model = chosenModel();
  if (!model) return;
  whole.setAttribute("aria-busy", "true");
  look({ model, target, settled }).then(() => whole.removeAttribute("aria-busy"));
}

/** While a stroke grows, a few times a second are enough. */
function glance() {
  glancing ??= setTimeout(() => {
    glancing = null;
    if (pad.drawing.growing) lookAgain({ settled: false });
  }, GLANCE_MS);
}

function showModel() {
  const model = chosenModel();
  const { class_names: names, dataset } = model;
  const ofDigits = dataset === "mnist";
  showScene(null);
  find("about").textContent = describe(model);
  find("missing").textContent = missing(model);
  find("imagination").hidden = !offers(model, "decode");
  views.offer((panel) => panel === "walk" || offers(model, panel === "routing" ? "trace" : "decode"));
  whole.classList.toggle("photos", forPhotos(model));
  whole.style.setProperty("--ratio", `${model.width} / ${model.height}`);
  pad.takesDrawings(!forPhotos(model));
  find("tab-digit").textContent = ofDigits ? "One digit" : "One picture";
  find("draw-title").textContent = ofDigits ? "Draw a digit" : "Show a picture";
  pad.samples.hidden = !SAMPLED.has(dataset);
  pad.offer({ dataset, names });
  const lookAs = (target) => scene && lookAgain({ target });
  showClasses(model, lookAs);
  targetChoice.replaceChildren(...names.map((name, label) => make("option", { value: label }, name)));
  lookAgain();
}

async function start() {
  models = await loadModels();
  const single = models.filter((model) => !forPairs(model));
  modelChoice.replaceChildren(...single.map(({ name }) => make("option", { value: name }, name)));
  modelChoice.value = (single.find((model) => model.default) ?? single[0])?.name;
  modelChoice.disabled = single.length < 2;
  if (single.length) showModel();
  else find("tab-pair").click();
  find("tab-digit").hidden = !single.length;
  return models.filter(forPairs);
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

const pairs = pairPads(find("pair"), { models: startUntilItWorks(), fail: complain });
pad.addEventListener("stroke", glance);
pad.addEventListener("change", () => lookAgain());
modelChoice.addEventListener("change", showModel);
targetChoice.addEventListener("change", () => lookAgain({ target: Number(targetChoice.value) }));
takePastes([pad, ...pairs]);
tabs(tasks, (panel) => {
  for (const part of [modelChoice, find("model-label")]) part.hidden = panel !== "digit";
});
