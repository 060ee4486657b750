/** The service, as functions. Every failure is a `Problem`. */

import { askForKey, calm, countDown } from "./notice.js";

const KEY = "capsnet-api-key";
const WAITING = new Set([429, 503]);
const UNREACHED_S = 3;

/** RFC 9457 problem details, or what stands for them where the service was not reached: status 0. */
export class Problem extends Error {
  constructor(status, { title, detail, parameter }) {
    super(detail ?? title);
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.parameter = parameter;
  }
}

/** Thrown instead of asking again for what nobody wants any more. */
export class Overtaken extends Error {}

/**
 * Ask the service; tries again while it says when to or does not answer, with the key where it wants one.
 *
 * @param {string} path
 * @param {{query?: object, body?: FormData | object, accept?: string, wanted?: () => boolean}} [options]
 *   `wanted` says whether the answer is still of use, before it is asked for again
 * @returns {Promise<any>} JSON, or a Blob where `accept` is another type
 */
export async function ask(path, { query = {}, body, accept = "application/json", wanted = () => true } = {}) {
  const url = `${path}${search(query)}`;
  let waited = false;
  const wait = async (problem, seconds) => {
    await countDown(problem, seconds, wanted);
    if (!wanted()) throw new Overtaken(problem.title);
    waited = true;
  };
  for (;;) {
    const answer = await send(url, body, accept).catch(() => null);
    if (!answer) {
      await wait(new Problem(0, { title: "The service does not answer." }), UNREACHED_S);
      continue;
    }
    if (answer.ok) {
      if (waited) calm();
      return accept === "application/json" ? answer.json() : answer.blob();
    }
    const problem = await read(answer);
    const seconds = Number(answer.headers.get("Retry-After"));
    if (answer.status === 401) {
      sessionStorage.setItem(KEY, await askForKey(problem));
    } else if (WAITING.has(answer.status) && seconds) {
      await wait(problem, seconds);
    } else {
      throw problem;
    }
  }
}

function send(url, body, accept) {
  const headers = { Accept: accept };
  const key = sessionStorage.getItem(KEY);
  if (key) headers["X-API-Key"] = key;
  const form = body instanceof FormData;
  if (body && !form) headers["Content-Type"] = "application/json";
  const content = body && !form ? JSON.stringify(body) : body;
  return fetch(url, { method: body ? "POST" : "GET", headers, body: content });
}

async function read(answer) {
  const fallback = { title: `The service answered ${answer.status}` };
  return new Problem(answer.status, { ...fallback, ...(await answer.json().catch(() => ({}))) });
}

function search(query) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined);
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

/** Pictures as a body. @param {...Blob} pictures */
export function upload(...pictures) {
  const form = new FormData();
  for (const picture of pictures) form.append("file", picture, picture.name ?? "drawing.png");
  return form;
}
