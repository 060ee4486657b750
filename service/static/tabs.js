/** The tabs pattern of the ARIA Authoring Practices: arrow keys, Home and End choose a tab. */

const MOVES = {
  ArrowRight: (place, count) => (place + 1) % count,
  ArrowLeft: (place, count) => (place + count - 1) % count,
  Home: () => 0,
  End: (place, count) => count - 1,
};

/**
 * @param {HTMLElement} list of role tablist
 * @param {(panel: string) => void} [chosen] called with the id of the panel that is shown
 */
export function tabs(list, chosen = () => {}) {
  const buttons = [...list.querySelectorAll("[role=tab]")];

  function choose(button) {
    for (const one of buttons) {
      const selected = one === button;
      one.setAttribute("aria-selected", String(selected));
      one.tabIndex = selected ? 0 : -1;
      document.getElementById(one.getAttribute("aria-controls")).hidden = !selected;
    }
    chosen(button.getAttribute("aria-controls"));
  }

  for (const [place, button] of buttons.entries()) {
    button.addEventListener("click", () => choose(button));
    button.addEventListener("keydown", (event) => {
      const move = MOVES[event.key];
      if (!move) return;
      event.preventDefault();
      const next = buttons[move(place, buttons.length)];
      next.focus();
      choose(next);
    });
  }
  choose(buttons[0]);
}
