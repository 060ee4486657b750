/** Strokes as a short text, for links: a byte for each coordinate, one more after each stroke, in base64url. */

const LOW = -0.1; // a little beyond the edges: strokes may leave the pad
const SPAN = 1.2;
const LEVELS = 254;
const END = 255;
/** Points that are closer, in sides of the pad, are one. */
const APART = 1 / 128;

/** @returns {number[]} the nearest point that a text can hold */
export function snap(point) {
  return point.map((value) => toValue(toByte(value)));
}

/** Whether a point is far enough from the one before. */
export function isApart([x, y], [fromX, fromY]) {
  return Math.hypot(x - fromX, y - fromY) >= APART;
}

/** @param {number[][][]} strokes of snapped points @returns {string} */
export function write(strokes) {
  const bytes = strokes.flatMap((points) => [...points.flat().map(toByte), END]);
  const text = bytes.map((byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** @param {string} text @returns {number[][][]} the strokes; none where the text is damaged */
export function read(text) {
  const strokes = [];
  let values = [];
  for (const byte of bytesOf(text)) {
    if (byte < END) values.push(toValue(byte));
    else {
      const points = values.flatMap((x, place) => (place % 2 ? [] : [[x, values[place + 1] ?? x]]));
      if (points.length) strokes.push(points);
      values = [];
    }
  }
  return strokes;
}

function bytesOf(text) {
  try {
    return Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  } catch {
    return [];
  }
}

function toByte(value) {
  return Math.round(Math.min(1, Math.max(0, (value - LOW) / SPAN)) * LEVELS);
}

function toValue(byte) {
  return LOW + (byte / LEVELS) * SPAN;
}
