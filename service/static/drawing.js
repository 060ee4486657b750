/** Strokes on a canvas, by mouse, pen or finger. */

import { make } from "./dom.js";
import { isApart, snap } from "./strokes.js";

const SIDE = 560;
const PEN = 0.085; // of the side: as thick as MNIST's, in a digit of a usual size

/** A square to draw in. */
export class Drawing {
  /**
   * @param {string} label for screen readers
   * @param {(kind: "stroke" | "change") => void} drew called with "change" after every stroke, "stroke" while one grows
   */
  constructor(label, drew) {
    this.drew = drew;
    this.strokes = [];
    this.canvas = make("canvas", { width: SIDE, height: SIDE, role: "img", "aria-label": label });
    this.canvas.addEventListener("pointerdown", (event) => this.#begin(event));
    this.canvas.addEventListener("pointermove", (event) => this.#extend(event));
    for (const end of ["pointerup", "pointercancel"]) {
      this.canvas.addEventListener(end, (event) => this.#end(event));
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
  }

  get empty() {
    return this.strokes.length === 0;
  }

  get growing() {
    return Boolean(this.drawn);
  }

  undo() {
    this.strokes.pop();
    this.#changed("change");
  }

  clear() {
    this.strokes = [];
    this.#changed("change");
  }

  /** Put other strokes in place of these without telling anyone. */
  restore(strokes = []) {
    this.strokes = strokes;
    this.drawn = null;
    this.#paint();
  }

  /** @returns {Promise<Blob>} a PNG, white strokes on black whatever the page looks like */
  toBlob() {
    const canvas = make("canvas", { width: SIDE / 2, height: SIDE / 2 });
    const context = canvas.getContext("2d");
    context.fillRect(0, 0, canvas.width, canvas.height);
    trace(context, this.strokes, canvas.width, "#fff");
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  }

  #begin(event) {
    if (!event.isPrimary || event.button !== 0) return;
    event.preventDefault();
    this.canvas.setPointerCapture(event.pointerId);
    this.drawn = [this.#place(event)];
    this.strokes.push(this.drawn);
    this.#changed("stroke");
  }

  #extend(event) {
    if (!this.drawn || !event.isPrimary) return;
    const events = event.getCoalescedEvents?.() ?? [];
    for (const point of (events.length ? events : [event]).map((one) => this.#place(one))) {
      if (isApart(point, this.drawn.at(-1))) this.drawn.push(point);
    }
    this.#changed("stroke");
  }

  #end(event) {
    if (!this.drawn || !event.isPrimary) return;
    this.drawn = null;
    this.#changed("change");
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return snap([(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]);
  }

  #changed(kind) {
    this.#paint();
    this.drew(kind);
  }

  #paint() {
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, SIDE, SIDE);
    trace(context, this.strokes, SIDE, getComputedStyle(this.canvas).color);
  }
}

function trace(context, strokes, side, colour) {
  context.strokeStyle = colour;
  context.lineWidth = PEN * side;
  context.lineCap = "round";
  context.lineJoin = "round";
  for (const points of strokes) {
    context.beginPath();
    for (const [x, y] of [points[0], ...points]) context.lineTo(x * side, y * side);
    context.stroke();
  }
}
