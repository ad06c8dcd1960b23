// The column of turns: in the order of the log, at its end as long as the reader is, and
// where the reader is otherwise.

import { el, icon } from './dom.js';

const NEAR = 64; // px from the end that count as the end

export class Transcript {
  #column;
  #earlier;
  #empty = null;
  #latest;
  #stuck = true;
  #kept = null; // distance from the end to keep, while earlier turns come in
  #frame = 0;
  #top = 0; // as of the last scrolling
  #height = 0;

  constructor({ earlier }) {
    this.#earlier = el('button', { class: 'btn btn-quiet btn-small earlier', type: 'button', hidden: true, on: { click: earlier } }, 'Earlier turns');
    this.#column = el('div', { class: 'column', role: 'log', 'aria-live': 'off', 'aria-label': 'Conversation' });
    this.#latest = el('button', { class: 'btn latest', type: 'button', hidden: true, on: { click: () => this.end() } }, icon('down'), 'Latest');
    this.scroll = el('div', { class: 'transcript', tabindex: -1 }, this.#earlier, this.#column);
    this.node = el('div', { class: 'transcript-frame' }, this.scroll, this.#latest);
    this.scroll.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    const sizes = new ResizeObserver(() => this.#stuck && this.#follow());
    sizes.observe(this.scroll);
    sizes.observe(this.#column); // turns that come into view are measured anew
  }

  clear() {
    this.#column.replaceChildren();
    this.#empty?.remove();
    this.#empty = null;
    this.#earlier.hidden = true;
    this.#stuck = this.#kept === null;
    this.#latest.hidden = true;
  }

  // hasEarlier says whether there are turns before the first.
  hasEarlier(yes) { this.#earlier.hidden = !yes; }

  // keep holds the reader where he is, while what comes before is told.
  keep() {
    this.#kept = this.scroll.scrollHeight - this.scroll.scrollTop;
    this.#stuck = false;
  }

  // change carries out a change, and follows it if the reader is at the end.
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

  // settled is called when the past is told.
  settled() { this.#kept = null; }

  // append adds what has no place yet.
  append(node, show = false) {
    this.#filled();
    this.#column.append(node);
    if (show) this.end();
  }

  // place puts a turn where its sequence belongs: after all that have a lower one.
  place(node, sequence) {
    this.#filled();
    let before = null;
    for (let n = this.#column.lastElementChild; n; n = n.previousElementSibling) {
      if (n === node) continue;
      const other = Number(n.dataset.sequence ?? 0);
      if (other && other < sequence) break;
      if (!n.dataset.sequence && !n.classList.contains('turn')) break; // a division stays where it was made
      before = n;
    }
    if (node.parentNode === this.#column && node.nextElementSibling === before) return;
    this.#column.insertBefore(node, before);
  }

  // divide draws a line after what there is.
  divide(words) { this.append(el('p', { class: 'division small muted' }, el('span', null, words))); }

  // showEmpty shows something as long as there is no turn; null: nothing.
  showEmpty(node) {
    this.#empty?.remove();
    this.#empty = node;
    if (node) this.scroll.append(node);
  }

  // end goes to the end, and stays there.
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

  // Only who scrolls up leaves the end: when the content grows or shrinks, that is no wish.
  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    const away = scrollHeight - scrollTop - clientHeight;
    if (away < NEAR) {
      this.#stuck = true;
      this.#latest.hidden = true;
    } else if (scrollTop < this.#top - 1 && scrollHeight >= this.#height) {
      this.#stuck = false;
    }
    this.#top = scrollTop;
    this.#height = scrollHeight;
  }
}
