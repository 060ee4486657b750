/** The buttons that copy the address of what is shown, and that of its lens alone for other pages. */

import { EMBEDDED, link, onTravel, recall } from "./address.js";
import { find, make } from "./dom.js";
import { tell } from "./notice.js";
import { OWN_FILE } from "./pad.js";

const PICTURES = ["image", "first", "second"];

async function copy(text, title, ...details) {
  const left = PICTURES.some((name) => recall(name) === OWN_FILE);
  const but = left ? "Your file is not included: links hold only samples and drawings. " : "";
  try {
    await navigator.clipboard.writeText(text);
    tell(title, but, ...details);
  } catch {
    history.replaceState(null, "", link()); // no clipboard without HTTPS
    tell("The link is in the address bar.", but, ...details);
  }
}

find("copy-link").addEventListener("click", () => copy(link(), "Link copied."));

find("copy-embed").addEventListener("click", () => {
  const { hash } = new URL(link());
  const address = new URL(`embed${hash}`, location.href);
  const frame = make("iframe", { src: address, width: 900, height: 640, title: "A lens of the capsule network playground" });
  copy(frame.outerHTML, "Code copied.", "Sites that CAPSNET_FRAME_ANCESTORS names can show this lens in a frame.");
});

/** In a frame: the open lens alone, and where it comes from. */
if (EMBEDDED) {
  document.documentElement.classList.add("embedded");
  document.head.append(make("base", { target: "_blank" })); // links leave the frame
  const open = make("a", { rel: "noopener" }, "Open in the playground");
  const point = () => open.setAttribute("href", new URL(`.${location.hash}`, location.href));
  open.addEventListener("click", point);
  onTravel(point);
  point();
  find("origin").hidden = false;
  find("origin").append(open);
}
