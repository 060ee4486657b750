/** Work that is asked for faster than it can be done. */

/**
 * At most one run is in flight; of the calls that come meanwhile only the newest is run.
 *
 * @template T
 * @param {(value: T) => Promise<void>} run
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
        await run(value).catch(fail);
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
