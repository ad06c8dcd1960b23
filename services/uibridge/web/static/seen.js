// Tracks which parts of a text have been on the screen. Every character of a call matters
// for the decision, so a request can be approved once all of it was visible or unfolded.

import { el } from './dom.js';
import { count } from './fmt.js';

const SLACK = 2; // px, tolerance for rounding
const LOOK = 300; // ms between two looks, as not every change of the layout has an event

// Seen watches blocks of text; long ones scroll. It calls onAll once, when all of them were
// on the screen or unfolded.
export class Seen {
  #parts = []; // {block, spans, height, all, unfold}
  #onAll;
  #watcher;
  #timer;
  #placed = false; // it was on the page
  #look = () => this.#looked();

  constructor(onAll) {
    this.#onAll = onAll;
    this.#watcher = new IntersectionObserver(this.#look, { threshold: [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1] });
    document.addEventListener('scroll', this.#look, { capture: true, passive: true });
    document.addEventListener('visibilitychange', this.#look);
    addEventListener('resize', this.#look);
    this.#timer = setInterval(this.#look, LOOK);
  }

  // part adds a block, with a button that unfolds it if it does not fit.
  part(block) {
    const lines = block.classList.contains('diff') ? block.childElementCount : block.textContent.split('\n').length;
    const unfold = el('button', { class: 'btn btn-small ask-unfold', type: 'button', on: { click: () => this.#unfold(part) } }, `Show all ${count(lines, 'line')}`);
    const part = { block, unfold, spans: [], height: 0, all: false };
    this.#parts.push(part);
    this.#watcher.observe(block);
    return el('div', { class: 'ask-part' }, block);
  }

  get all() { return this.#parts.every((p) => p.all); }

  // end stops watching.
  end() {
    this.#watcher.disconnect();
    clearInterval(this.#timer);
    document.removeEventListener('scroll', this.#look, { capture: true });
    document.removeEventListener('visibilitychange', this.#look);
    removeEventListener('resize', this.#look);
  }

  #unfold(part) {
    part.block.classList.add('unfolded');
    part.unfold.remove();
    part.all = true;
    part.block.focus({ preventScroll: true });
    this.#looked();
  }

  #looked() {
    const placed = this.#parts.some((p) => p.block.isConnected);
    if (this.#placed && !placed) this.end();
    this.#placed = placed;
    if (document.visibilityState !== 'visible') return;
    for (const part of this.#parts) if (!part.all) this.#note(part);
    if (!this.all) return;
    this.end();
    this.#onAll();
  }

  // note adds what is visible of a part now to what was visible before.
  #note(part) {
    const { block } = part;
    const height = block.scrollHeight;
    if (!block.isConnected || !height) return;
    if (height !== part.height) [part.height, part.spans] = [height, []]; // the layout has changed
    if (height <= block.clientHeight + SLACK) part.unfold.remove();
    else if (!part.unfold.isConnected) block.after(part.unfold);
    const rect = block.getBoundingClientRect();
    let [top, bottom] = [Math.max(rect.top, 0), Math.min(rect.bottom, innerHeight)];
    for (let e = block.parentElement; e; e = e.parentElement) {
      if (getComputedStyle(e).overflowY === 'visible') continue;
      const clip = e.getBoundingClientRect();
      [top, bottom] = [Math.max(top, clip.top), Math.min(bottom, clip.bottom)];
    }
    if (bottom <= top) return;
    part.spans.push([block.scrollTop + top - rect.top, block.scrollTop + bottom - rect.top]);
    part.spans.sort(([a], [b]) => a - b);
    const joined = [];
    for (const [from, to] of part.spans) {
      if (joined.length && from <= joined.at(-1)[1] + SLACK) joined.at(-1)[1] = Math.max(joined.at(-1)[1], to);
      else joined.push([from, to]);
    }
    part.spans = joined;
    part.all = joined[0][0] <= SLACK && joined[0][1] >= height - SLACK;
  }
}
