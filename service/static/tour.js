/** A guided tour: a card that leads from part to part of the page, and does what the reader would do. */

import { find, make } from "./dom.js";

const SEEN = "capsnet-tour";
const click = (selector) => () => document.querySelector(selector).click();
const STEPS = [
  {
    at: ".between",
    title: "Lengths",
    text: "A capsule is a group of numbers, here for one class. Each bar is the length of a capsule. It shows how sure the network is "
      + "that the class is in the picture. The bars need not add up to one: two can be long, or none.",
    act: takeSample("#pad", 5),
    needs: "tab-digit",
  },
  {
    at: "#reconstructed",
    title: "Reconstruction",
    text: "The decoder draws this picture from the pose of one capsule. A detail that is missing here may be missing "
      + "in the pose. Choose another bar to reconstruct the same picture as another class.",
    needs: "reconstructed",
  },
  {
    at: "#reconstructed",
    title: "Directions of a pose",
    text: "A pose is a vector. Each slider moves it along one direction, which mainly changes one thing, such as thickness "
      + "or slant. The slider shows the value that you ask for. After you move it, it also shows the value that is "
      + "measured on the drawing. The other directions, and the numbers of the pose, are below.",
    act: click("#tab-pose"),
    needs: "tab-pose",
  },
  {
    at: "#routing",
    title: "Routing",
    text: "Capsules vote for classes. Votes that agree make the class capsule longer: if there is a slider, move it "
      + "from iteration 1 to the last and watch the length grow. Orange "
      + "supports the class, and blue opposes it.",
    act: click("#tab-routing"),
    needs: "tab-routing",
  },
  {
    at: "#pair .apart",
    title: "Two digits",
    text: "Two overlapping digits make two capsules long. Each digit is reconstructed in its own colour, which shows "
      + "which strokes belong to it. One capsule cannot hold the same digit twice.",
    act: () => {
      find("tab-pair").click();
      takeSample("#pair section:nth-of-type(1)", 3)();
      takeSample("#pair section:nth-of-type(2)", 5)();
    },
    needs: "tab-pair",
  },
];
const card = find("tour");
let steps = [];
let place = 0;

/** A sample in a pad that is empty. */
function takeSample(pad, label) {
  return () => {
    const empty = document.querySelector(`${pad} .tools button + button:disabled`); // nothing to clear
    const samples = document.querySelectorAll(`${pad} .samples button`);
    if (empty) (samples[label] ?? samples[0])?.click();
  };
}

/** Offer the tour to visitors who have neither seen nor dismissed it. */
export function offerTour() {
  if (stored()) return;
  const text = "A few steps show what to look for.";
  show("New here?", text, [button("Start the tour", begin, "primary"), button("No, thanks", end)]);
  card.classList.add("offer");
}

function begin() {
  card.classList.remove("offer");
  steps = STEPS.filter(({ needs }) => !find(needs).hidden);
  go(0);
}

function go(next) {
  place = next;
  const { at, title, text, needs, act = () => {} } = steps[place];
  if (needs !== "tab-pair") find("tab-digit").click();
  act();
  const last = place === steps.length - 1;
  show(`${place + 1} of ${steps.length}: ${title}`, text, [
    ...(place ? [button("Back", () => go(place - 1))] : []),
    button(last ? "Finish" : "Next", last ? end : () => go(place + 1), "primary"),
    ...(last ? [] : [button("Dismiss", end)]),
  ]);
  card.classList.toggle("aside", at === "#reconstructed"); // the right side is to be watched
  point(document.querySelector(at));
  card.querySelector("h2").focus({ preventScroll: true });
}

function end() {
  const within = card.contains(document.activeElement);
  card.hidden = true;
  point(null);
  try {
    localStorage.setItem(SEEN, "seen");
  } catch {} // a browser that stores nothing asks again
  if (within) find("open-tour").focus();
}

function stored() {
  try {
    return localStorage.getItem(SEEN);
  } catch {
    return null;
  }
}

function show(title, text, buttons) {
  const heading = make("h2", { id: "tour-title", tabindex: "-1" }, title);
  card.replaceChildren(heading, make("p", {}, text), make("div", { class: "tools" }, ...buttons));
  card.hidden = false;
}

function button(name, onclick, kind = "") {
  return make("button", { type: "button", class: kind, onclick }, name);
}

function point(part) {
  document.querySelector(".pointed")?.classList.remove("pointed");
  part?.classList.add("pointed");
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  part?.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
}

find("open-tour").addEventListener("click", begin);
document.addEventListener("keydown", ({ key, target }) => {
  const running = !card.hidden && !card.classList.contains("offer") && !document.querySelector("dialog[open]");
  if (key === "Escape" && (running || card.contains(target))) end();
});
