// The red lights: a strip above everything else, in every view, as long as the camera or
// the microphone is open.

import { el, fill } from './dom.js';

export class Lights {
  #open = new Map(); // what → {words, stop}

  constructor() {
    this.node = el('div', { class: 'lights', role: 'status', 'aria-label': 'Camera and microphone', hidden: true });
  }

  // on shows a light; stop is the action of its button.
  on(what, words, stop) {
    this.#open.set(what, { words, stop });
    this.#draw();
  }

  off(what) { if (this.#open.delete(what)) this.#draw(); }

  #draw() {
    this.node.hidden = !this.#open.size;
    document.documentElement.classList.toggle('lit', this.#open.size > 0);
    fill(this.node, [...this.#open].map(([what, { words, stop }]) => el('span', { class: 'light', dataset: { what } },
      el('span', { class: 'light-dot', 'aria-hidden': 'true' }), el('span', { class: 'clip' }, words),
      el('button', { class: 'light-stop', type: 'button', 'aria-label': `${words}. Stop`, on: { click: stop } }, 'Stop'))));
  }
}
