/** What the page says when something is amiss, and the form that asks for a key. */

import { listener, pause, Problem } from "./api.js";
import { find, make } from "./dom.js";

const box = find("notice");
const countdown = make("span", { "aria-hidden": "true" });

/** Say that something failed. */
export function complain(error) {
  if (error instanceof Problem) return say("problem", error.title, error.detail ?? "");
  console.error(error);
  say("problem", "The page failed.", String(error));
}

/** Say that all is well again. */
export function calm() {
  box.replaceChildren();
  box.className = "notice";
}

/** Say that something is done. */
export function tell(title, ...details) {
  say("done", title, ...details);
}

function say(kind, title, ...details) {
  box.className = `notice ${kind}`;
  box.replaceChildren(make("strong", {}, sentence(title)), " ", make("span", {}, ...details));
}

function sentence(text) {
  return text.replace(/^./, (first) => first.toUpperCase()).replace(/[^.]$/, "$&.");
}

/** Says what is waited for once, and counts the seconds without reading them aloud. */
listener.waiting = async (problem, seconds, wanted) => {
  const reason = problem.status === 503 ? (problem.detail ?? problem.title) : problem.title;
  const said = countdown.isConnected && box.firstChild.textContent === sentence(reason);
  if (!said) say("waiting", reason, "Trying again ", countdown);
  for (let left = Math.ceil(seconds); left > 0 && wanted(); left -= 1) {
    countdown.textContent = `in ${left} s.`;
    await pause(1);
  }
};

listener.served = calm;

let asked = null;

listener.askForKey = (problem) => {
  asked ??= new Promise((resolve) => open(problem, resolve)).finally(() => {
    asked = null;
  });
  return asked;
};

function open(problem, resolve) {
  const dialog = /** @type {HTMLDialogElement} */ (find("key"));
  const field = /** @type {HTMLInputElement} */ (find("key-value"));
  find("key-why").textContent = problem.detail ?? "";
  field.value = "";
  dialog.oncancel = (event) => event.preventDefault();
  dialog.querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    dialog.close();
    resolve(field.value);
  };
  if (!dialog.open) dialog.showModal();
}
