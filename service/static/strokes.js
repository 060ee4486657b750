/** Strokes as a short text, for links: two digits of base 64 for each coordinate, a dot between strokes. */

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const LOW = -0.1; // a little beyond the edges: strokes may leave the pad
const SPAN = 1.2;
const LAST = 64 * 64 - 1;
/** Points that are closer, in sides of the pad, are one. */
const APART = 1 / 96;

/** @returns {number[]} the nearest point that a text can hold */
export function snap(point) {
  return point.map((value) => toValue(toLevel(value)));
}

/** Whether a point is far enough from the one before. */
export function isApart([x, y], [fromX, fromY]) {
  return Math.hypot(x - fromX, y - fromY) >= APART;
}

/** @param {number[][][]} strokes of snapped points @returns {string} */
export function write(strokes) {
  return strokes.map((points) => points.flat().map(toLevel).map(toText).join("")).join(".");
}

/** @param {string} text @returns {number[][][]} the strokes; none where the text is damaged */
export function read(text) {
  const strokes = text.split(".").map((stroke) => stroke.match(/[\w-]{4}/g) ?? []);
  const toPoint = (four) => [four.slice(0, 2), four.slice(2)].map(toNumber).map(toValue);
  return strokes.filter((points) => points.length).map((points) => points.map(toPoint));
}

function toText(level) {
  return DIGITS[level >> 6] + DIGITS[level & 63];
}

function toNumber([high, low]) {
  return 64 * DIGITS.indexOf(high) + DIGITS.indexOf(low);
}

function toLevel(value) {
  return Math.round(Math.min(1, Math.max(0, (value - LOW) / SPAN)) * LAST);
}

function toValue(level) {
  return LOW + (level / LAST) * SPAN;
}
