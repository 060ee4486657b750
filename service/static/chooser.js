/** A button that asks for a file. */

import { make } from "./dom.js";

/** What the service reads: browsers name no type for arrays. */
const READ = "image/*,.npy";

/** @param {(file: File) => void} take @returns {[HTMLButtonElement, HTMLInputElement]} the button, and the field that it opens */
export function fileChooser(take) {
  const field = make("input", {
    type: "file",
    accept: READ,
    class: "unseen",
    tabindex: "-1",
    "aria-hidden": "true",
    onchange: () => {
      const [file] = field.files;
      field.value = ""; // so that the same file can be chosen again
      if (file) take(file);
    },
  });
  return [make("button", { type: "button", onclick: () => field.click() }, "Choose a file"), field];
}
