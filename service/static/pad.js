/** Where a picture comes from: drawn, dropped, pasted, chosen, or one of the samples. */

import { ask } from "./api.js";
import { make, show } from "./dom.js";
import { Drawing } from "./drawing.js";

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
    this.drawing = new Drawing(`${name}: draw here, or take a file or a sample below`);
    this.drawing.addEventListener("stroke", () => this.#drew("stroke"));
    this.drawing.addEventListener("change", () => this.#drew("change"));
    this.image = make("img", { class: "taken", alt: "", hidden: true });
    this.hint = make("p", { class: "hint", "aria-hidden": "true" });
    this.paper = make("div", { class: "paper pad" }, this.image, this.drawing.canvas, this.hint);
    this.#takeDrops();
    this.samples = make("div", { class: "samples", role: "group", "aria-label": `${name}: samples` });
    this.offer(DIGITS);
    parent.append(this.paper, this.#tools(name), this.samples);
    this.takesDrawings(true);
  }

  /** Whether there is anything to draw on, or only files are taken; those of before are forgotten. */
  takesDrawings(taken) {
    if (this.drawing.canvas.hidden === taken) this.clear();
    this.drawing.canvas.hidden = !taken;
    this.undoing.hidden = !taken;
    this.hint.textContent = taken ? "draw, drop or paste" : "choose, drop or paste a picture";
  }

  /**
   * Offer samples of another data set.
   * @param {{dataset: string, names: string[]}} classes
   */
  offer({ dataset, names }) {
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

  get pointedAt() {
    return this.paper.matches(":hover, :focus-within");
  }

  /** @returns {Promise<Blob>} the picture, as the service gets it */
  async picture() {
    return this.file ?? this.drawing.toBlob();
  }

  /** Take a picture file instead of a drawing. */
  take(file, alt = "the picture that was taken", className = "taken") {
    this.drawing.wipe();
    URL.revokeObjectURL(this.address);
    this.file = file;
    this.address = URL.createObjectURL(file);
    this.image.className = className;
    this.image.onerror = () => show(this.image, null);
    show(this.image, this.address, alt);
    this.#changed("change");
  }

  /** Take one of the service's own pictures, unless another is wanted before it comes. */
  async takeSample({ dataset, name, label }) {
    const asked = (this.asked = {});
    const file = await ask(`/samples/${label}.png`, { query: { dataset }, accept: "image/png" });
    if (asked === this.asked) this.take(file, `a sample: ${name}`, "taken pixels");
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

  #dropFile() {
    URL.revokeObjectURL(this.address);
    this.file = null;
    show(this.image, null);
  }

  #changed(kind) {
    this.asked = null;
    this.hint.hidden = !this.empty;
    for (const tool of this.erasers) tool.disabled = this.empty;
    this.dispatchEvent(new Event(kind));
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

  #takeDrops() {
    const over = (inside) => (event) => {
      event.preventDefault();
      this.paper.classList.toggle("over", inside);
    };
    this.paper.addEventListener("dragover", over(true));
    this.paper.addEventListener("dragleave", over(false));
    this.paper.addEventListener("drop", (event) => {
      over(false)(event);
      const [file] = event.dataTransfer.files;
      if (file) this.take(file);
    });
  }
}

/** Pictures that are pasted go to the pad that is pointed at, else to an empty one in view. */
export function takePastes(pads) {
  document.addEventListener("paste", (event) => {
    const [file] = event.clipboardData.files;
    const inView = pads.filter((one) => one.paper.offsetParent !== null);
    const pad = inView.find((one) => one.pointedAt) ?? inView.find((one) => one.empty) ?? inView[0];
    if (file && pad) pad.take(file);
  });
}
