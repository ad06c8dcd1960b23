// The column of turns, in the order of the log. It follows the end while the reader is
// there, and otherwise keeps the reader's position.

import { el, icon } from './dom.js';

const NEAR = 64; // px from the end that count as the end
const HAND = 1000; // ms after one of these in which scrolling up is the reader's
const UPWARDS = {
  wheel: (e) => e.deltaY < 0,
  touchmove: () => true,
  pointerdown: (e, scroll) => e.target === scroll, // the scroll bar
  pointermove: (e, scroll) => e.buttons > 0 && e.target === scroll,
  keydown: (e) => ['ArrowUp', 'PageUp', 'Home', ' '].includes(e.key),
};

export class Transcript {
  #column;
  #earlier;
  #empty = null;
  #latest;
  #stuck = true;
  #kept = null; // distance from the end to keep, while earlier turns are loaded
  #frame = 0;
  #top = 0; // at the last scroll event
  #height = 0;
  #hand = -Infinity; // when the reader last used a wheel, a key or a finger

  constructor({ earlier }) {
    this.#earlier = el('button', { class: 'btn btn-quiet btn-small earlier', type: 'button', hidden: true, on: { click: earlier } }, 'Earlier turns');
    this.#column = el('div', { class: 'column', role: 'log', 'aria-live': 'off', 'aria-label': 'Conversation' });
    this.#latest = el('button', { class: 'btn latest', type: 'button', hidden: true, on: { click: () => this.end() } }, icon('down'), 'Latest');
    this.scroll = el('div', { class: 'transcript', tabindex: -1 }, this.#earlier, this.#column);
    this.node = el('div', { class: 'transcript-frame' }, this.scroll, this.#latest);
    this.scroll.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    for (const [by, up] of Object.entries(UPWARDS)) {
      this.scroll.addEventListener(by, (e) => { if (up(e, this.scroll)) this.#hand = performance.now(); }, { passive: true });
    }
    const sizes = new ResizeObserver(() => this.#stuck && this.#follow());
    sizes.observe(this.scroll);
    sizes.observe(this.#column); // turns that become visible are measured again
  }

  clear() {
    this.#column.replaceChildren();
    this.#empty?.remove();
    this.#empty = null;
    this.#earlier.hidden = true;
    this.#stuck = this.#kept === null;
    this.#latest.hidden = true;
  }

  // hasEarlier sets whether there are turns before the first.
  hasEarlier(yes) { this.#earlier.hidden = !yes; }

  // keep holds the reader's position while earlier turns are loaded.
  keep() {
    this.#kept = this.scroll.scrollHeight - this.scroll.scrollTop;
    this.#stuck = false;
  }

  // change calls fn, and then follows the end if the reader is there.
  change(fn) {
    fn();
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.#kept !== null) this.scroll.scrollTop = this.scroll.scrollHeight - this.#kept;
      else if (this.#stuck) this.#follow();
      else this.#latest.hidden = false;
    });
  }

  // settled is called when the past has been loaded.
  settled() { this.#kept = null; }

  // append adds a node that has no place yet.
  append(node, show = false) {
    this.#filled();
    this.#column.append(node);
    if (show) this.end();
  }

  // place moves a turn to its position: after all turns with a lower sequence.
  place(node, sequence) {
    this.#filled();
    let before = null;
    for (let n = this.#column.lastElementChild; n; n = n.previousElementSibling) {
      if (n === node) continue;
      const other = Number(n.dataset.sequence ?? 0);
      if (other && other < sequence) break;
      if (!n.dataset.sequence && !n.classList.contains('turn')) break; // a divider stays where it was added
      before = n;
    }
    if (node.parentNode === this.#column && node.nextElementSibling === before) return;
    this.#column.insertBefore(node, before);
  }

  // divide adds a divider at the end.
  divide(words) { this.append(el('p', { class: 'division small muted' }, el('span', null, words))); }

  // showEmpty shows a node as long as there are no turns; null removes it.
  showEmpty(node) {
    this.#empty?.remove();
    this.#empty = node;
    if (node) this.scroll.append(node);
  }

  // end scrolls to the end, and follows it.
  end() {
    this.#stuck = true;
    this.#follow();
  }

  #filled() {
    this.#empty?.remove();
    this.#empty = null;
  }

  #follow() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.#latest.hidden = true;
  }

  // Only scrolling up stops following the end. A change of the content's height does not: what becomes shorter moves
  // the position, and may have become longer again before that is noticed.
  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    const away = scrollHeight - scrollTop - clientHeight;
    if (away < NEAR) {
      this.#stuck = true;
      this.#latest.hidden = true;
    } else if (scrollTop < this.#top - 1 && (scrollHeight === this.#height || performance.now() - this.#hand < HAND)) {
      this.#stuck = false;
    }
    this.#top = scrollTop;
    this.#height = scrollHeight;
  }
}
