// Inputs that are not acknowledged yet. Each has an id, so that it can be sent again
// after a lost connection: the log stores it once.

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

  // each calls fn with every waiting turn.
  each(fn) { for (const { turn } of this.#all.values()) fn(turn); }

  clear() { this.#all.clear(); }

  // send sends an input, now or when connected; it calls placed with the sequence.
  send(item) {
    const id = crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, '0')).join('');
    const entry = { ...item, id, busy: false };
    this.#all.set(id, entry);
    this.#try(entry);
  }

  // flush sends the waiting inputs in the order in which they were typed.
  async flush() {
    for (const entry of [...this.#all.values()]) await this.#try(entry);
  }

  // take removes and returns the turn of an input that was typed here and that the bridge
  // has reported, or null.
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
      entry.turn.sending('waiting for the connection');
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
      if (!this.#all.has(entry.id)) return; // its notification arrived meanwhile: it is in the log
      if (e.code === 'unavailable' || e.code === 'timeout' || e.code === 'overloaded') {
        entry.turn.sending(e.code === 'overloaded' ? 'waiting: too many inputs in flight' : `waiting for the ${this.#app.connection.isOpen ? 'bus' : 'connection'}`);
        if (this.#app.connection.isOpen) setTimeout(() => this.#try(entry), Math.max(1000, Math.min(e.retryAfter ?? 0, 5000))); // the bus is unreachable, not the bridge
      } else {
        entry.turn.unsent(refusal(e), () => this.#try(entry));
        this.#notice('');
      }
    } finally {
      entry.busy = false;
    }
  }
}
