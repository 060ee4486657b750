/** The button that copies the address of what is shown. */

import { link, recall } from "./address.js";
import { find } from "./dom.js";
import { tell } from "./notice.js";
import { OWN_FILE } from "./pad.js";

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
