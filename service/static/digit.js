/** The first tab: a picture goes to the service, its answers to the parts of the page. */

import { recall, recallNumber, remember } from "./address.js";
import { ask, upload } from "./api.js";
import { find, make, pixels } from "./dom.js";
import { latest } from "./latest.js";
import { COVERAGE, markTarget, showClasses, showPrediction } from "./lengths.js";
import { Lenses } from "./lenses.js";
import { comparable, describe, directionsOf, forPhotos, invitation, missing, offers, share, weakPoses } from "./models.js";
import { calm, complain } from "./notice.js";
import { Pad } from "./pad.js";
import { hidePose, showDecoded, showMoved, showPose, tellError } from "./pose.js";
import { openingOf } from "./samples.js";

const GLANCE_MS = 150;
const whole = find("digit");
const modelChoice = /** @type {HTMLSelectElement} */ (find("model"));
const targetChoice = /** @type {HTMLSelectElement} */ (find("target"));

export const pad = new Pad(find("pad"), "Digit");
const decode = latest(async ({ pose, of }, wanted) => {
  const { images, measured } = await ask("/decode", { query: { model: of.model.name }, body: { pose, label: of.target }, wanted });
  calm();
  if (of === scene) showMoved(images[0], measured);
});

let models = [];
/**
 * What is looked at: {model, picture, prediction, target}, with {decoded, input} where the network has poses;
 * null while there is nothing.
 */
let scene = null;
let glancing = null;
const lenses = new Lenses(() => scene, (model) => models.filter((one) => comparable(one, model)));

const look = latest(async ({ model, target, settled }, wanted) => {
  if (pad.empty) {
    calm();
    return showScene(null);
  }
  const query = { model: model.name };
  const poses = offers(model, "decode") || undefined;
  const novelty = poses && model.novelty ? true : undefined;
  const coverage = model.confidence ? COVERAGE : undefined;
  try {
    const picture = await pad.picture();
    const describes = poses && model.directions.length > 0;
    const [answer, decoded, described] = await Promise.all([
      ask("/classify", { query: { ...query, poses, novelty, coverage }, body: upload(picture), wanted }),
      poses && ask("/reconstruct", { query: { ...query, target }, body: upload(picture), wanted }),
      describes && ask("/describe", { query: { ...query, target }, body: upload(picture), wanted }),
    ]);
    if (model !== chosenModel()) return;
    calm();
    const [prediction] = answer.predictions;
    const shown = decoded?.label ?? target ?? prediction.label;
    showScene({ model, picture, prediction, decoded, described, input: decoded?.input, target: shown }, settled);
  } catch (error) {
    showScene(null);
    throw error;
  }
}, whole);

function showScene(next, settled = true) {
  scene = next;
  showPrediction(scene?.prediction ?? null, scene?.described);
  markTarget(scene?.target);
  showDecoded(scene?.decoded);
  targetChoice.disabled = !scene;
  if (scene) targetChoice.value = String(scene.target);
  if (!settled) return;
  placeSliders();
  showNeighbours(scene);
  lenses.show(scene);
}

function placeSliders() {
  if (!scene?.decoded || weakPoses(scene.model)) return hidePose();
  const shown = scene;
  const { model, prediction, target } = scene;
  const draw = (pose, moved) => {
    tellError(moved ? null : shown.decoded);
    decode({ pose, of: shown });
  };
  showPose(prediction.poses[target], directionsOf(model, target), draw);
}

function chosenModel() {
  return models.find((model) => model.name === modelChoice.value);
}

function lookAgain({ target, settled = true } = {}) {
  const model = chosenModel();
  if (model) look({ model, target, settled });
}

/** While a stroke grows, a few times a second are enough. */
function glance() {
  glancing ??= setTimeout(() => {
    glancing = null;
    if (pad.drawing.growing) lookAgain({ settled: false });
  }, GLANCE_MS);
}

/** What was done last; the rest of what is shown follows from it. */
function changed(changes, options) {
  remember({ model: modelChoice.value, target: null, pose: null, ...changes }, options);
  lookAgain({ target: changes.target });
}

function choosePicture() {
  const source = pad.source;
  const drawing = (text) => text?.startsWith("d.");
  changed({ image: source }, { replace: drawing(source) && drawing(recall("image")) });
}

function chooseTarget(target) {
  if (scene) changed({ target });
}

function showModel() {
  const model = chosenModel();
  const { class_names: names, dataset } = model;
  const ofDigits = dataset === "mnist";
  showScene(null);
  find("about").textContent = describe(model);
  find("missing").textContent = missing(model);
  find("share").textContent = share(model);
  find("reconstructed").hidden = !offers(model, "decode");
  lenses.offer(model);
  whole.classList.toggle("photos", forPhotos(model));
  whole.style.setProperty("--ratio", `${model.width} / ${model.height}`);
  pad.offer(model.samples, { drawable: !forPhotos(model), invitation: invitation(model) });
  find("tab-digit").textContent = ofDigits ? "One digit" : "One picture";
  find("draw-title").textContent = ofDigits ? "Draw a digit" : "Choose a picture";
  showClasses(model, chooseTarget);
  targetChoice.replaceChildren(...names.map((name, label) => make("option", { value: label }, name)));
}

/**
 * @param {any[]} found the networks for single pictures
 * @param {any[]} further views that have no lens of their own
 */
export async function offerModels(found, further) {
  models = found;
  for (const view of further) lenses.add(view);
  modelChoice.replaceChildren(...models.map(({ name }) => make("option", { value: name }, name)));
  modelChoice.disabled = models.length < 2;
  await restoreDigit();
}

/** Show what the address tells of. */
export async function restoreDigit() {
  if (!models.length) return;
  const named = models.find(({ name }) => name === recall("model"));
  modelChoice.value = (named ?? models.find((model) => model.default) ?? models[0]).name;
  showModel();
  lenses.tabs.open(recall("view"));
  whole.setAttribute("aria-busy", "true");
  if (!(await showPicture(recall("image")))) return;
  const target = recallNumber("target");
  lookAgain({ target: target in chosenModel().class_names ? target : undefined });
}

/** What an address tells of or, where that cannot be shown, a sample; whether nothing else was wanted meanwhile. */
async function showPicture(source) {
  try {
    return await pad.restore(source, openingOf(chosenModel().samples));
  } catch (error) {
    complain(error);
    return true;
  }
}

pad.addEventListener("stroke", glance);
pad.addEventListener("change", choosePicture);
modelChoice.addEventListener("change", async () => {
  const emptied = pad.empty;
  showModel();
  whole.setAttribute("aria-busy", "true");
  if (pad.empty && !emptied && !(await showPicture())) return;
  changed({ image: pad.source, view: lenses.active });
});
targetChoice.addEventListener("change", () => chooseTarget(Number(targetChoice.value)));

const NEIGHBOURS = 5;
const near = find("near");

/** @type {(scene: any) => Promise<void>} shows those of what is looked at; none where the bundle brings no images */
const showNeighbours = latest(async (scene, wanted) => {
  if (!scene || !offers(scene.model, "neighbours")) return near.replaceChildren();
  const { model, target, picture } = scene;
  const query = { model: model.name, target, count: NEIGHBOURS };
  const { neighbours, class_name: name, drawn } = await ask("/neighbours", { query, body: upload(picture), wanted });
  if (!wanted()) return;
  const title = `Nearest training images of ${name}${drawn ? ", drawn from their poses" : ""}`;
  const images = neighbours.map(({ image, distance }) => {
    const alt = `at distance ${distance.toFixed(1)}`;
    return make("div", { class: "paper", title: alt }, pixels(image, alt));
  });
  near.replaceChildren(make("p", { class: "quiet" }, title), make("div", { class: "row" }, ...images));
});
