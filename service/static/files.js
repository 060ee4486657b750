/** Pictures that come as files: chosen, dropped or pasted. */

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

export function takeDrops(pad) {
  const over = (inside) => (event) => {
    event.preventDefault();
    pad.paper.classList.toggle("over", inside);
  };
  pad.paper.addEventListener("dragover", over(true));
  pad.paper.addEventListener("dragleave", over(false));
  pad.paper.addEventListener("drop", (event) => {
    over(false)(event);
    const [file] = event.dataTransfer.files;
    if (file) pad.take(file);
  });
}

/** Pictures that are pasted, or dropped outside a pad, go to the pad under the pointer, else to an empty pad in view. */
export function takeStrays(pads) {
  const take = ([file]) => {
    const inView = pads.filter((one) => one.paper.offsetParent !== null);
    const pad = inView.find((one) => one.pointedAt) ?? inView.find((one) => one.empty) ?? inView[0];
    if (file && pad) pad.take(file);
  };
  document.addEventListener("paste", (event) => take(event.clipboardData.files));
  document.addEventListener("dragover", (event) => {
    if (event.dataTransfer.types.includes("Files")) event.preventDefault(); // else the browser opens the file
  });
  document.addEventListener("drop", (event) => {
    if (event.defaultPrevented || !event.dataTransfer.types.includes("Files")) return; // a pad's, or no file
    event.preventDefault();
    take(event.dataTransfer.files);
  });
}
