// The line above the input field: what the agent is doing, for how long, and how to stop
// it.

import { el, icon } from './dom.js';
import { serverNow } from './http.js';
import { STATES, busy } from './words.js';
import * as fmt from './fmt.js';

export class StateLine {
  #dot;
  #words;
  #time;
  #hint;
  #queued;
  #cancel;
  #show;
  #state = '';
  #tool = '';
  #since = NaN; // the bridge's time
  #known = false;
  #timer = 0;
  #hintTimer = 0;
  #asks = 0;
  #open = false;

  // cancel and show are the buttons' actions; without cancel there is no such button.
  constructor({ cancel, show }) {
    this.#dot = el('span', { class: 'state-dot dot', 'aria-hidden': 'true' });
    this.#words = el('span', { class: 'state-words' });
    this.#time = el('span', { class: 'state-time num faint', 'aria-hidden': 'true' });
    this.#queued = el('span', { class: 'chip', hidden: true });
    this.#hint = el('span', { class: 'state-hint', role: 'status' });
    this.#show = el('button', { class: 'btn btn-small state-show', type: 'button', hidden: true, on: { click: show } }, 'Show');
    this.#cancel = cancel && el('button', { class: 'btn btn-small state-cancel', type: 'button', hidden: true, title: 'Cancel the turn (Esc twice)', on: { click: cancel } }, icon('stop'), 'Cancel');
    this.node = el('div', { class: 'state small', role: 'group', 'aria-label': 'State of the agent' },
      this.#dot, el('span', { class: 'clip' }, this.#words, this.#time), this.#show, this.#queued, el('span', { class: 'grow' }), this.#hint, this.#cancel);
  }

  get busy() { return busy(this.#state); }

  // set sets the state and when it began: the time of its event. Without a time, the start
  // is unknown until an event of the past has it.
  set(state, time) {
    const at = Date.parse(time ?? '');
    if (state === this.#state && (Number.isNaN(at) || this.#known)) return;
    const was = this.busy && this.#known;
    this.#state = state;
    if (state !== 'executing_tool') this.#tool = '';
    if (!was || !this.busy) [this.#since, this.#known] = [at, !Number.isNaN(at)];
    this.#draw();
  }

  // tool sets the name of the running tool.
  tool(name) {
    this.#tool = name;
    this.#draw();
  }

  queue(n) {
    this.#queued.hidden = !n;
    this.#queued.textContent = `${n} waiting`;
  }

  decisions(n) {
    this.#asks = n;
    this.#draw();
  }

  connection(state) {
    this.#open = state === 'open';
    this.#draw();
  }

  // hint shows a text for a moment.
  hint(words) {
    clearTimeout(this.#hintTimer);
    this.#hint.textContent = words;
    if (words) this.#hintTimer = setTimeout(() => { this.#hint.textContent = ''; }, 4000);
  }

  #draw() {
    clearInterval(this.#timer);
    this.node.dataset.state = this.#open ? this.#state : 'offline';
    const words = STATES[this.#state] ?? '';
    const text = !this.#open ? 'Not connected' : this.#state === 'executing_tool' && this.#tool ? `Running ${this.#tool}` : words;
    if (this.#words.textContent !== text) this.#words.textContent = text;
    const on = this.#open && this.busy;
    if (this.#cancel) this.#cancel.hidden = !on;
    this.#show.hidden = !this.#asks;
    const seconds = () => {
      const ms = serverNow() - this.#since;
      this.#time.textContent = on && ms > 1000 ? ` ${fmt.duration(Math.floor(ms / 1000) * 1000)}` : '';
    };
    seconds();
    if (on) this.#timer = setInterval(seconds, 1000);
  }
}
