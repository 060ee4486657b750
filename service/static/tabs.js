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
 * @returns {{offer: (offered: (panel: string) => boolean) => void}} `offer` hides the other tabs
 */
export function tabs(list, chosen = () => {}) {
  const buttons = [...list.querySelectorAll("[role=tab]")];
  const shown = () => buttons.filter((button) => !button.hidden);
  const panel = (button) => button.getAttribute("aria-controls");

  function choose(button) {
    for (const one of buttons) {
      const selected = one === button;
      one.setAttribute("aria-selected", String(selected));
      one.tabIndex = selected ? 0 : -1;
      document.getElementById(panel(one)).hidden = !selected;
    }
    chosen(panel(button));
  }

  for (const button of buttons) {
    button.addEventListener("click", () => choose(button));
    button.addEventListener("keydown", (event) => {
      const move = MOVES[event.key];
      if (!move) return;
      event.preventDefault();
      const next = shown()[move(shown().indexOf(button), shown().length)];
      next.focus();
      choose(next);
    });
  }
  choose(buttons[0]);

  function offer(offered) {
    for (const button of buttons) button.hidden = !offered(panel(button));
    if (buttons.some((button) => button.hidden && button.tabIndex === 0)) choose(shown()[0]);
  }

  return { offer };
}
