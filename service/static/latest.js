/** Work that is asked for faster than it can be done. */

import { Overtaken } from "./api.js";
import { complain } from "./notice.js";

/**
 * At most one run is in flight; of the calls that come meanwhile only the newest is run. The page says what fails.
 *
 * @template T
 * @param {(value: T, wanted: () => boolean) => Promise<void>} run which may ask whether a newer call waits
 * @param {HTMLElement} [part] of the page, which is busy meanwhile
 * @returns {(value: T) => Promise<void>} resolves when nothing is left to do
 */
export function latest(run, part) {
  let running = null;
  let next = null;

  async function work() {
    part?.setAttribute("aria-busy", "true");
    await null; // so that `running` is set, whatever fails
    try {
      while (next) {
        const [value] = next;
        next = null;
        await run(value, () => !next).catch((error) => {
          if (!(error instanceof Overtaken)) complain(error);
        });
      }
    } finally {
      running = null;
      part?.removeAttribute("aria-busy");
    }
  }

  return (value) => {
    next = [value];
    running ??= work();
    return running;
  };
}
