/** Strokes on a canvas, by mouse, pen or finger. */

import { make } from "./dom.js";
import { isApart, snap } from "./strokes.js";

const SIDE = 560;
const PEN = 0.085; // of the side: as thick as MNIST's, in a digit of a usual size

/** A square to draw in. Fires "change" after every stroke and "stroke" while one grows. */
export class Drawing extends EventTarget {
  /** @param {string} label for screen readers */
  constructor(label) {
    super();
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
    this.#changed();
  }

  clear() {
    this.strokes = [];
    this.#changed();
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
    this.#put(this.#place(event));
  }

  #extend(event) {
    if (!this.drawn || !event.isPrimary) return;
    const events = event.getCoalescedEvents?.() ?? [];
    this.#add((events.length ? events : [event]).map((one) => this.#place(one)));
  }

  #end(event) {
    if (this.drawn && event.isPrimary) this.#lift();
  }

  #put(point) {
    this.drawn = [snap(point)];
    this.strokes.push(this.drawn);
    this.#paint();
    this.dispatchEvent(new Event("stroke"));
  }

  #add(points) {
    for (const point of points.map(snap)) {
      if (this.drawn && isApart(point, this.drawn.at(-1))) this.drawn.push(point);
    }
    this.#paint();
    this.dispatchEvent(new Event("stroke"));
  }

  #lift() {
    this.drawn = null;
    this.#changed();
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  #changed() {
    this.#paint();
    this.dispatchEvent(new Event("change"));
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
