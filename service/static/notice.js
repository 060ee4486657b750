/** What the page says when something is amiss, and the form that asks for a key. */

import { find, make } from "./dom.js";

const box = find("notice");
const countdown = make("span", { "aria-hidden": "true" });

/** Say that something failed: a problem of the service, or the page itself. */
export function complain(error) {
  if (error.title) {
    tell(error.title, error.detail ?? "");
  } else {
    console.error(error);
    tell("The page failed.", String(error));
  }
  box.classList.add("problem");
}

/** Say that all is well again. */
export function calm() {
  box.replaceChildren();
  box.className = "notice";
}

/** Say something in place of what was said before. */
export function tell(title, ...details) {
  box.className = "notice";
  box.replaceChildren(make("strong", {}, sentence(title)), " ", make("span", {}, ...details));
}

function sentence(text) {
  return text.replace(/^./, (first) => first.toUpperCase()).replace(/[^.]$/, "$&.");
}

/** @returns {Promise<void>} resolves after some seconds */
export function pause(seconds) {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}

/** Say once what is waited for, and count the seconds, while the answer is wanted, without reading them aloud. */
export async function countDown(problem, seconds, wanted) {
  const reason = problem.status === 503 ? (problem.detail ?? problem.title) : problem.title;
  const said = countdown.isConnected && box.firstChild.textContent === sentence(reason);
  if (!said) tell(reason, "Trying again ", countdown);
  for (let left = Math.ceil(seconds); left > 0 && wanted(); left -= 1) {
    countdown.textContent = `in ${left} s.`;
    await pause(1);
  }
}

let asked = null;

/** @param {{detail?: string}} problem @returns {Promise<string>} a key */
export function askForKey(problem) {
  asked ??= new Promise((resolve) => open(problem, resolve)).finally(() => {
    asked = null;
  });
  return asked;
}

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
