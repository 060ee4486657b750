/** Where a picture comes from: drawn, dropped, pasted, chosen, or one of the samples. */

import { ask } from "./api.js";
import { make, show } from "./dom.js";
import { Drawing } from "./drawing.js";
import { takeDrops } from "./handover.js";
import { read, write } from "./strokes.js";

const SAMPLE = /^(mnist|fashion-mnist)-(\d)$/;
const DRAWN = "d.";
/** Of a picture that no address can hold. */
export const OWN_FILE = "file";
const DIGITS = { dataset: "mnist", names: [..."0123456789"] };

/** A drawing or a file. Fires "change" with a new picture, "stroke" while one is drawn. */
export class Pad extends EventTarget {
  /**
   * @param {HTMLElement} parent
   * @param {{name: string, fail: (error: unknown) => void}} options
   */
  constructor(parent, { name, fail }) {
    super();
    this.file = null;
    this.fail = fail;
    this.drawing = new Drawing(`${name}: draw here, by keyboard with the arrow keys and Space, or choose below`);
    this.drawing.addEventListener("stroke", () => this.#drew("stroke"));
    this.drawing.addEventListener("change", () => this.#drew("change"));
    this.image = make("img", { class: "taken", alt: "", hidden: true });
    this.hint = make("p", { class: "hint", "aria-hidden": "true" });
    this.paper = make("div", { class: "paper pad" }, this.image, this.drawing.canvas, this.hint);
    takeDrops(this);
    this.samples = make("div", { class: "samples", role: "group", "aria-label": `${name}: samples` });
    this.offer(DIGITS);
    parent.append(this.paper, this.#tools(name), this.samples);
    this.takesDrawings(true);
  }

  /** Whether there is anything to draw on, or only files are taken; those of before are forgotten. */
  takesDrawings(taken) {
    if (this.drawing.canvas.hidden === taken) this.#hold(null);
    this.drawing.canvas.hidden = !taken;
    this.undoing.hidden = !taken;
    this.hint.textContent = taken ? "draw, drop or paste" : "choose, drop or paste a picture";
  }

  /**
   * Offer samples of another data set.
   * @param {{dataset: string, names: string[]}} classes
   */
  offer({ dataset, names }) {
    this.classes = { dataset, names };
    const take = (label) => this.takeSample({ dataset, name: names[label], label }).catch(this.fail);
    const buttons = names.map((name, label) =>
      make("button", { type: "button", onclick: () => take(label), "aria-label": `Sample ${name}` }, name),
    );
    this.samples.replaceChildren(make("span", {}, "samples"), ...buttons);
    this.asked = null;
  }

  get empty() {
    return !this.file && this.drawing.empty;
  }

  /** What an address says of the picture: a sample's name, a drawing's strokes, or that it was a file. */
  get source() {
    if (this.file) return this.sample ?? OWN_FILE;
    return this.drawing.empty ? "" : DRAWN + write(this.drawing.strokes);
  }

  get pointedAt() {
    return this.paper.matches(":hover, :focus-within");
  }

  /** @returns {Promise<Blob>} the picture, as the service gets it */
  async picture() {
    return this.file ?? this.drawing.toBlob();
  }

  /** Take a picture file instead of a drawing. */
  take(file) {
    this.own = file;
    this.#hold({ file, alt: "your picture" });
    this.#changed("change");
  }

  /** Take one of the service's own pictures, unless another is wanted before it comes. */
  async takeSample(sample) {
    if (await this.#holdSample(sample)) this.#changed("change");
  }

  /**
   * Show what an address tells of without telling anyone.
   * @param {string} [source] see there
   * @returns {Promise<boolean>} whether nothing else was wanted meanwhile
   */
  async restore(source = "") {
    this.asked = null;
    if (source === this.source) return true;
    const [, dataset, label] = SAMPLE.exec(source) ?? [];
    if (dataset) {
      const name = dataset === this.classes.dataset ? this.classes.names[label] : label;
      return this.#holdSample({ dataset, name, label });
    }
    const own = source === OWN_FILE && this.own;
    this.#hold(own ? { file: own, alt: "your picture" } : null);
    if (source.startsWith(DRAWN) && !this.drawing.canvas.hidden) this.drawing.restore(read(source.slice(DRAWN.length)));
    this.#refresh();
    return true;
  }

  undo() {
    if (this.file) this.clear();
    else this.drawing.undo();
  }

  clear() {
    this.#dropFile();
    this.drawing.clear();
  }

  #drew(kind) {
    if (!this.drawing.empty) this.#dropFile();
    this.#changed(kind);
  }

  async #holdSample({ dataset, name, label }) {
    const asked = (this.asked = {});
    const file = await ask(`/samples/${label}.png`, { query: { dataset }, accept: "image/png" });
    if (asked !== this.asked) return false;
    this.#hold({ file, alt: `a sample: ${name}`, className: "taken pixels", sample: `${dataset}-${label}` });
    return true;
  }

  /** A file in place of what there is, or nothing. */
  #hold(taken) {
    this.drawing.restore();
    this.#dropFile();
    if (taken) {
      const { file, alt, className = "taken", sample } = taken;
      [this.file, this.sample, this.address] = [file, sample, URL.createObjectURL(file)];
      this.image.className = className;
      this.image.onerror = () => show(this.image, null);
      show(this.image, this.address, alt);
    }
    this.#refresh();
  }

  #dropFile() {
    URL.revokeObjectURL(this.address);
    [this.file, this.sample] = [null, undefined];
    show(this.image, null);
  }

  #changed(kind) {
    this.#refresh();
    this.dispatchEvent(new Event(kind));
  }

  #refresh() {
    this.asked = null;
    this.hint.hidden = !this.empty;
    for (const tool of this.erasers) tool.disabled = this.empty;
  }

  #tools(name) {
    const chooser = make("input", {
      type: "file",
      accept: "image/*",
      class: "unseen",
      tabindex: "-1",
      "aria-hidden": "true",
      onchange: () => {
        const [file] = chooser.files;
        chooser.value = ""; // so that the same file can be chosen again
        if (file) this.take(file);
      },
    });
    const eraser = (title, erase) => make("button", { type: "button", disabled: true, onclick: erase }, title);
    this.undoing = eraser("Undo", () => this.undo());
    this.erasers = [this.undoing, eraser("Clear", () => this.clear())];
    const file = make("button", { type: "button", onclick: () => chooser.click() }, "Choose a file");
    const label = `${name}: tools`;
    return make("div", { class: "tools", role: "group", "aria-label": label }, ...this.erasers, file, chooser);
  }
}
