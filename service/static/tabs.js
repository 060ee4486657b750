/** The tabs pattern of the ARIA Authoring Practices: arrow keys, Home and End choose a tab. */

const MOVES = {
  ArrowRight: (place, count) => (place + 1) % count,
  ArrowLeft: (place, count) => (place + count - 1) % count,
  Home: () => 0,
  End: (place, count) => count - 1,
};

/**
 * @param {HTMLElement} list of role tablist
 * @param {(panel: string, picked: boolean) => void} [chosen] called with the id of the panel that is shown, and
 *   whether the user picked it
 * @returns {{add: (tab: HTMLElement, before: HTMLElement) => void, offer: (offered: (panel: string) => boolean) => void, open: (panel?: string) => void}} `offer` hides the
 *   other tabs, `open` shows a panel or, where there is none of that name, the first
 */
export function tabs(list, chosen = () => {}) {
  const buttons = [...list.querySelectorAll("[role=tab]")];
  const shown = () => buttons.filter((button) => !button.hidden);
  const panel = (button) => button.getAttribute("aria-controls");

  function choose(button, picked = false) {
    for (const one of buttons) {
      const selected = one === button;
      one.setAttribute("aria-selected", String(selected));
      one.tabIndex = selected ? 0 : -1;
      document.getElementById(panel(one)).hidden = !selected;
    }
    chosen(panel(button), picked);
  }

  function listen(button) {
    button.addEventListener("click", () => choose(button, true));
    button.addEventListener("keydown", (event) => {
      const move = MOVES[event.key];
      if (!move) return;
      event.preventDefault();
      const next = shown()[move(shown().indexOf(button), shown().length)];
      next.focus();
      choose(next, true);
    });
  }
  buttons.forEach(listen);
  choose(buttons[0]);

  function add(button, before) {
    before.before(button);
    buttons.splice(buttons.indexOf(before), 0, button);
    button.tabIndex = -1;
    button.setAttribute("aria-selected", "false");
    listen(button);
  }

  function offer(offered) {
    for (const button of buttons) button.hidden = !offered(panel(button));
    if (buttons.some((button) => button.hidden && button.tabIndex === 0)) choose(shown()[0]);
  }

  function open(name) {
    choose(shown().find((button) => panel(button) === name) ?? shown()[0]);
  }

  return { add, offer, open };
}
