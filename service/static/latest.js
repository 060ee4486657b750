/** Work that is asked for faster than it can be done. */

import { Overtaken } from "./api.js";

/**
 * At most one run is in flight; of the calls that come meanwhile only the newest is run.
 *
 * @template T
 * @param {(value: T, wanted: () => boolean) => Promise<void>} run which may ask whether a newer call waits
 * @param {(error: unknown) => void} fail
 * @returns {(value: T) => Promise<void>} resolves when nothing is left to do
 */
export function latest(run, fail) {
  let running = null;
  let next = null;

  async function work() {
    await null; // so that `running` is set, whatever fails
    try {
      while (next) {
        const [value] = next;
        next = null;
        await run(value, () => !next).catch((error) => {
          if (!(error instanceof Overtaken)) fail(error);
        });
      }
    } finally {
      running = null;
    }
  }

  return (value) => {
    next = [value];
    running ??= work();
    return running;
  };
}
