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

/** Files that are dropped or pasted go to the pad under the pointer, else to an empty pad in view. */
export function takeFiles(pads) {
  const take = ([file], target) => {
    const inView = pads.filter((one) => one.paper.offsetParent !== null);
    const under = inView.find((one) => one.paper.contains(target) || one.pointedAt);
    const pad = under ?? inView.find((one) => one.empty) ?? inView[0];
    if (file && pad) pad.take(file);
  };
  document.addEventListener("paste", ({ clipboardData, target }) => take(clipboardData.files, target));
  for (const type of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(type, (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault(); // else the browser opens the file
      for (const { paper } of pads) paper.classList.toggle("over", type === "dragover" && paper.contains(event.target));
      if (type === "drop") take(event.dataTransfer.files, event.target);
    });
  }
}
