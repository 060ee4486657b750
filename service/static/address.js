/**
 * What the page shows, as the part of its address behind the #, which browsers never send. Each part of the page
 * has names of its own in it: `model`, `image`, `target`, `pose`, `tab`, `view` and so on.
 */

const SETTLED_MS = 300;

let state = read();
let pending;

function read() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** @returns {string | undefined} what the address says */
export function recall(name) {
  return state[name];
}

/** @returns {number} the same as a whole number, or NaN */
export function recallNumber(name) {
  return /^-?\d{1,4}$/.test(state[name] ?? "") ? Number(state[name]) : NaN;
}

/**
 * Put values into the address, and take those out that are null or "".
 *
 * @param {Record<string, unknown>} changes
 * @param {{replace?: boolean}} [options] `replace` where Back should pass over the change, as over those of a slider
 */
export function remember(changes, { replace = false } = {}) {
  const all = Object.entries({ ...state, ...changes }).filter(([, value]) => (value ?? "") !== "");
  const next = Object.fromEntries(all.map(([name, value]) => [name, String(value)]));
  if (hash(next) === hash(state)) return;
  if (!replace) settle();
  state = next;
  if (replace) pending ??= setTimeout(settle, SETTLED_MS); // browsers refuse many changes at once
  else history.pushState(null, "", link());
}

/** The address of what is shown. */
export function link() {
  return `${location.origin}${location.pathname}${hash(state)}`;
}

function hash(of) {
  return `#${new URLSearchParams(of)}`;
}

function settle() {
  if (!pending) return;
  clearTimeout(pending);
  pending = undefined;
  history.replaceState(null, "", link());
}

/** @param {() => void} restore called after Back, Forward, or another address of this page */
export function onTravel(restore) {
  addEventListener("popstate", () => {
    clearTimeout(pending);
    pending = undefined;
    state = read();
    restore();
  });
}
