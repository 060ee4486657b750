/** A grid of cells that the style sheet colours, so that it follows the page from light to dark. */

import { make } from "./dom.js";

export class Cells {
  /**
   * @param {number} count
   * @param {number} columns
   * @param {Record<string, unknown>} [attributes] of the grid
   */
  constructor(count, columns, attributes = {}) {
    this.cells = Array.from({ length: count }, () => make("span"));
    this.grid = make("div", { ...attributes, class: "cells" }, ...this.cells);
    this.grid.style.gridTemplateColumns = `repeat(${columns}, 1fr)`;
  }

  /**
   * @param {number[] | number[][]} values of each cell, or of rows of them
   * @param {(value: number) => [colour: string, strength: number]} look a class of the style sheet, and 0 to 1
   */
  paint(values, look) {
    for (const [place, value] of values.flat().entries()) {
      const [colour, strength] = look(value);
      this.cells[place].className = colour;
      this.cells[place].style.opacity = strength;
    }
  }
}
