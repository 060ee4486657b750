/** The dialog that lists the keys. */

import { find } from "./dom.js";

const dialog = /** @type {HTMLDialogElement} */ (find("help"));

find("open-help").addEventListener("click", () => dialog.showModal());
dialog.querySelector("button").addEventListener("click", () => dialog.close());
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement && event.target.type === "password";
  if (event.key === "?" && !typing && !document.querySelector("dialog[open]")) dialog.showModal();
});
