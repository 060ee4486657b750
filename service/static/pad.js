/** Where a picture comes from: drawn, dropped, pasted, chosen, or one of the samples. */

import { make, show } from "./dom.js";
import { Drawing } from "./drawing.js";
import { fileChooser } from "./files.js";
import { complain } from "./notice.js";
import { fetchSample } from "./samples.js";
import { read, write } from "./strokes.js";

const DRAWN = "d.";
/** Of a picture that no address can hold. */
export const OWN_FILE = "file";
/** Of a pad that was emptied, unlike one that nobody has touched yet. */
const NOTHING = "none";

/** A drawing or a file. Fires "change" with a new picture, "stroke" while one is drawn. */
export class Pad extends EventTarget {
  /**
   * @param {HTMLElement} parent
   * @param {string} name
   */
  constructor(parent, name) {
    super();
    this.file = null;
    this.drawing = new Drawing(`${name}: draw here, or choose below`, (kind) => this.#drew(kind));
    this.image = make("img", { class: "taken", alt: "", hidden: true });
    this.hint = make("p", { class: "hint" });
    this.paper = make("div", { class: "paper pad" }, this.image, this.drawing.canvas, this.hint);
    this.samples = make("div", { class: "samples", role: "group", "aria-label": `${name}: samples` });
    this.credit = make("p", { class: "credit quiet" });
    parent.append(this.paper, this.#tools(name), this.samples, this.credit);
    this.offer([]);
  }

  /**
   * Offer other samples, and a sheet to draw on or none. A sample that is not among them goes; what was drawn stays,
   * if out of sight.
   *
   * @param {import("./samples.js").Sample[]} samples
   * @param {{drawable?: boolean, invitation?: string}} [options] `invitation` is what the empty pad says
   */
  offer(samples, { drawable = true, invitation = "draw, drop or paste" } = {}) {
    this.offered = samples;
    this.samples.replaceChildren(...samples.map((sample) => this.#button(sample)));
    this.drawing.canvas.hidden = !drawable;
    this.undoing.hidden = !drawable;
    this.invitation = invitation;
    if (this.sample && !samples.some(({ id }) => id === this.sample.id)) this.#dropFile();
    this.#refresh();
  }

  get empty() {
    return !this.file && !this.drawn;
  }

  get drawn() {
    return !this.drawing.canvas.hidden && !this.drawing.empty;
  }

  /** What an address says of the picture: a sample's name, a drawing's strokes, or that it was a file. */
  get source() {
    if (this.file) return this.sample?.id ?? OWN_FILE;
    return this.drawn ? DRAWN + write(this.drawing.strokes) : NOTHING;
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
   * Show what an address tells of, or what the page opens with, without telling anyone.
   * @param {string} [source] see there
   * @param {string} [opening] a sample
   * @returns {Promise<boolean>} whether nothing else was wanted meanwhile
   */
  async restore(source, opening) {
    if (!(await this.#restore(source))) return false;
    return !this.empty || source === NOTHING || this.#restore(opening);
  }

  async #restore(source = "") {
    this.asked = null;
    if (source === this.source) return true;
    const sample = this.offered.find(({ id }) => id === source);
    if (sample) return this.#holdSample(sample);
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
    if (this.drawing.canvas.hidden) this.#changed("change");
    else this.drawing.clear();
  }

  #drew(kind) {
    if (this.drawn) this.#dropFile();
    this.#changed(kind);
  }

  async #holdSample(sample) {
    const asked = (this.asked = {});
    const file = await fetchSample(sample);
    if (asked !== this.asked) return false;
    this.#hold({ file, alt: `a sample: ${sample.name}`, className: "taken pixels", sample });
    return true;
  }

  #button(sample) {
    const image = make("img", { class: "pixels", alt: "", onload: () => URL.revokeObjectURL(image.src) });
    fetchSample(sample).then((file) => {
      image.src = URL.createObjectURL(file);
    }, complain);
    const take = () => this.takeSample(sample).catch(complain);
    const name = { "aria-label": `Sample ${sample.name}`, title: sample.name };
    return make("button", { type: "button", onclick: take, ...name }, image);
  }

  /** A file in place of what there is, or nothing. */
  #hold(taken) {
    if (!this.drawing.canvas.hidden) this.drawing.restore();
    this.#dropFile();
    if (taken) {
      const { file, alt, className = "taken", sample } = taken;
      [this.file, this.sample, this.address] = [file, sample, URL.createObjectURL(file)];
      this.image.className = className;
      this.image.onerror = () => this.#hideUnreadable(file);
      show(this.image, this.address, alt);
    }
    this.#refresh();
  }

  /** An array, or a picture that the service may read all the same. */
  #hideUnreadable(file) {
    if (file !== this.file) return;
    this.unreadable = true;
    show(this.image, null);
    this.#refresh();
  }

  #dropFile() {
    URL.revokeObjectURL(this.address);
    [this.file, this.sample, this.unreadable] = [null, undefined, false];
    show(this.image, null);
  }

  #changed(kind) {
    this.#refresh();
    this.dispatchEvent(new Event(kind));
  }

  #refresh() {
    this.asked = null;
    this.hint.textContent = this.unreadable ? `Your browser cannot show ${this.file.name}.` : this.invitation;
    this.hint.setAttribute("aria-hidden", String(!this.unreadable)); // the canvas invites too
    this.hint.hidden = !this.empty && !this.unreadable;
    for (const tool of this.erasers) tool.disabled = this.empty;
    this.credit.textContent = this.sample ? `${this.sample.name}: ${this.sample.credit}` : "";
  }

  #tools(name) {
    const eraser = (title, erase) => make("button", { type: "button", disabled: true, onclick: erase }, title);
    this.undoing = eraser("Undo", () => this.undo());
    this.erasers = [this.undoing, eraser("Clear", () => this.clear())];
    const label = `${name}: tools`;
    return make("div", { class: "tools", role: "group", "aria-label": label }, ...this.erasers, ...fileChooser((file) => this.take(file)));
  }
}
