// The frame: the rail with the sessions, the conversation, the panel, and announcements
// to screen readers.

import { el, svg } from './dom.js';
import { Lights } from './lights.js';
import { recall, remember } from './store.js';

// brand is the name with its logo: a heap of five, the meaning of skandha.
export function brand() {
  const heap = [[11.3, 10.5], [20.7, 10.5], [6.6, 20.5], [16, 20.5], [25.4, 20.5]];
  return el('span', { class: 'brand' },
    svg('svg', { viewBox: '0 0 32 32', fill: 'currentColor', 'aria-hidden': 'true' }, heap.map(([cx, cy]) => svg('circle', { cx, cy, r: 4.3 }))),
    'Skandha');
}

const NARROW = matchMedia('(max-width: 760px)');
const OVERLAY = matchMedia('(max-width: 1100px)'); // the panel covers the conversation

export class Shell {
  #scrim;
  #polite;
  #urgent;
  #opener = null; // the element that gets the focus back

  constructor(root, app) {
    this.lights = new Lights();
    this.rail = el('nav', { class: 'rail', id: 'rail', 'aria-label': 'Sessions' });
    this.main = el('main', { class: 'main', id: 'conversation', tabindex: -1, 'aria-label': 'Conversation' });
    this.panel = el('aside', { class: 'panel', id: 'panel', 'aria-label': 'Events, timeline, tools and plugins', hidden: true });
    this.#polite = el('div', { class: 'visually-hidden', role: 'status', 'aria-live': 'polite' });
    this.#urgent = el('div', { class: 'visually-hidden', role: 'alert', 'aria-live': 'assertive' });
    this.#scrim = el('button', { class: 'scrim', type: 'button', tabindex: -1, 'aria-label': 'Close', hidden: true, on: { click: () => this.dismiss() } });
    this.announce = (text, urgent = false) => {
      const region = urgent ? this.#urgent : this.#polite;
      region.replaceChildren(el('p', null, text)); // a new element is announced even if its text is the same
    };
    const skip = el('a', { class: 'btn skip', href: '#conversation', on: { click: (e) => { e.preventDefault(); app.conversation.focus(); } } }, 'Skip to the conversation');
    root.replaceChildren(skip, this.lights.node, el('div', { class: 'shell' }, this.rail, this.main, this.panel), this.#scrim, this.#polite, this.#urgent);
    const width = recall('panel.width', 0);
    if (width) this.setPanelWidth(width);
    NARROW.addEventListener('change', () => this.#cover());
    OVERLAY.addEventListener('change', () => this.#cover());
  }

  // isNarrow reports whether the rail is a drawer.
  get isNarrow() { return NARROW.matches; }

  // isOverlay reports whether the panel covers the conversation.
  get isOverlay() { return OVERLAY.matches; }

  toggleDrawer() {
    if (this.rail.classList.contains('open')) this.dismiss();
    else {
      this.#opener = document.activeElement;
      this.rail.classList.add('open');
      this.#cover();
      this.rail.querySelector('button, a, input')?.focus();
    }
  }

  closeDrawer() {
    this.rail.classList.remove('open');
    this.#cover();
  }

  // showPanel shows or hides the panel.
  showPanel(on) {
    if (on && this.isOverlay && this.panel.hidden) this.#opener = document.activeElement;
    this.panel.hidden = !on;
    this.#cover();
  }

  // dismiss closes what covers the conversation, and reports whether anything did.
  dismiss() {
    const drawer = this.isNarrow && this.rail.classList.contains('open');
    const panel = this.isOverlay && !this.panel.hidden;
    if (drawer) this.rail.classList.remove('open');
    else if (panel) this.panel.dispatchEvent(new Event('dismiss'));
    if (drawer || panel) {
      this.#cover();
      this.#opener?.focus?.();
      this.#opener = null;
    }
    return drawer || panel;
  }

  setPanelWidth(px) {
    const width = Math.round(Math.min(Math.max(px, 300), innerWidth * 0.6));
    this.panel.style.setProperty('--panel', `${width}px`);
    remember('panel.width', width);
    return width;
  }

  // What is covered cannot be reached with the keyboard.
  #cover() {
    const drawer = this.isNarrow && this.rail.classList.contains('open');
    const panel = this.isOverlay && !this.panel.hidden;
    this.#scrim.hidden = !(drawer || panel);
    this.main.inert = drawer || panel;
    this.panel.inert = drawer;
    this.rail.inert = panel;
  }
}
