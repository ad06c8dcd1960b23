// What was typed here and is not acknowledged yet. Each input has an id, so that it may
// be sent again after a break: the log takes it once.

import { refusal } from './words.js';

export class Outbox {
  #app;
  #all = new Map(); // by id
  #notice;

  constructor(app, notice) {
    this.#app = app;
    this.#notice = notice;
  }

  get size() { return this.#all.size; }

  // each is called with every turn that waits.
  each(fn) { for (const { turn } of this.#all.values()) fn(turn); }

  clear() { this.#all.clear(); }

  // send sends an input, now or when there is a connection; placed gets its sequence.
  send(item) {
    const id = crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, '0')).join('');
    const entry = { ...item, id, busy: false };
    this.#all.set(id, entry);
    this.#try(entry);
  }

  // flush sends what waits, in the order in which it was typed.
  async flush() {
    for (const entry of [...this.#all.values()]) await this.#try(entry);
  }

  // take is the turn that an input told by the bridge was typed into, if it was here.
  take(id, sequence) {
    for (const [key, entry] of this.#all) {
      if (key === id || entry.sequence === sequence) {
        this.#all.delete(key);
        return entry.turn;
      }
    }
    return null;
  }

  async #try(entry) {
    if (entry.busy || entry.sequence || !this.#all.has(entry.id)) return;
    if (!this.#app.connection.isOpen) {
      entry.turn.sending('waits for the connection');
      return;
    }
    entry.busy = true;
    entry.turn.sending('sending');
    try {
      const receipt = await this.#app.rpc.call('submitUserInput', { input: entry.text, id: entry.id, mode: entry.mode, ...entry.session });
      entry.sequence = receipt.sequence;
      entry.turn.sent();
      this.#all.delete(entry.id);
      entry.placed(receipt.sequence);
    } catch (e) {
      if (!this.#all.has(entry.id)) return; // it was told of meanwhile: it is in the log
      if (e.code === 'unavailable' || e.code === 'timeout' || e.code === 'overloaded') {
        entry.turn.sending(e.code === 'overloaded' ? 'waits: too much is under way' : `waits for the ${this.#app.connection.isOpen ? 'bus' : 'connection'}`);
        if (this.#app.connection.isOpen) setTimeout(() => this.#try(entry), Math.max(1000, Math.min(e.retryAfter ?? 0, 5000))); // the bus is away, not the bridge
      } else {
        entry.turn.unsent(refusal(e), () => this.#try(entry));
        this.#notice('');
      }
    } finally {
      entry.busy = false;
    }
  }
}
