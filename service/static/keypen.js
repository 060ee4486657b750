/** A pen for the keyboard: arrow keys move it, Space puts it down and lifts it. */

const STEP = 1 / 28; // a pixel of MNIST
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * @param {HTMLElement} canvas that takes the keys
 * @param {{begin: (point: number[]) => void, extend: (point: number[]) => void, end: () => void,
 *   moved: () => void}} draw
 * @returns {{tip: number[] | null}} where the pen is, while the canvas has the focus by keyboard
 */
export function keyPen(canvas, draw) {
  const pen = { tip: null };
  let place = [0.5, 0.25];
  let down = false;

  function lift() {
    if (!down) return;
    down = false;
    draw.end();
  }

  function show(tip) {
    pen.tip = tip;
    draw.moved();
  }

  canvas.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!pen.tip || (!move && event.key !== " ")) return; // after a click, the keys go on scrolling
    event.preventDefault();
    if (move) {
      place = place.map((value, axis) => Math.min(1, Math.max(0, value + STEP * move[axis])));
      if (down) draw.extend(place);
    } else if (down) {
      lift();
    } else {
      down = true;
      draw.begin(place);
    }
    show(place);
  });
  canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && show(place));
  canvas.addEventListener("blur", () => {
    lift();
    show(null);
  });
  return pen;
}
