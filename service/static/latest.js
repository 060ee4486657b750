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
    while (next) {
      const [value] = next;
      next = null;
      try {
        await run(value);
      } catch (error) {
        fail(error);
      }
    }
    running = null;
  }

  return (value) => {
    next = [value];
    running ??= work();
    return running;
  };
}
