/** The third panel: what is decoded, and how far it is from the network's input. */

import { find, show } from "./dom.js";
import { showPreview } from "./pose.js";

const reconstruction = /** @type {HTMLImageElement} */ (find("reconstruction"));
const fitted = /** @type {HTMLImageElement} */ (find("fitted"));

/** An answer of /reconstruct, or nothing. */
export function showDecoded(decoded) {
  const alt = decoded ? `reconstruction of class ${decoded.class_name}` : undefined;
  showReconstruction(decoded?.reconstruction, alt);
  show(fitted, decoded?.input, "the network input");
  tellError(decoded);
}

/** An image decoded from a pose that was moved. */
export function showMoved(image) {
  showReconstruction(image, reconstruction.alt);
}

/** How far the reconstruction is from the network's input; nothing of one whose pose was moved. */
export function tellError(decoded) {
  find("error").textContent = decoded ? `mean squared error ${decoded.error.toFixed(3)}` : "";
}

function showReconstruction(image, alt) {
  show(reconstruction, image, alt);
  showPreview(image);
}
