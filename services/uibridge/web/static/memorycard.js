// One memory: what it says, where it came from and, with the right "talk", its operations.
// Forgetting needs a second click.

import { el, fill } from './dom.js';
import { ago, duration, exact } from './fmt.js';
import { mono } from './facts.js';
import { Question } from './question.js';
import { reveal } from './reveal.js';

const KINDS = {
  fact: 'Somebody said it, or the agent found it out', note: 'A note', experience: 'A turn: what was asked and done, and how it ended',
  lesson: 'How a call that failed was corrected', capability: 'A tool that has served a kind of request',
};
const LONG = 480; // characters after which a text is folded

// MemoryCard shows one memory. It calls changed after an operation, with its node if the memory
// is gone.
export class MemoryCard {
  #app; #changed;
  #head; #text; #from; #actions; #question = new Question();
  #memory = null;
  #drawn = '';
  #open = false;

  constructor(app, changed) {
    this.#app = app;
    this.#changed = changed;
    this.#head = el('div', { class: 'row' });
    this.#text = el('div', { class: 'memory-text', dir: 'auto' });
    this.#from = el('div', { class: 'muted small memory-from' });
    this.#actions = el('div', { class: 'row' });
    this.node = el('li', { class: 'card memory-card' }, this.#head, this.#text, this.#from, app.can('talk') && this.#actions, this.#question.node);
  }

  // show draws the memory, or the hit of a search. It does not change an operation in progress.
  show(m) {
    const now = JSON.stringify(m);
    if (now === this.#drawn) return;
    this.#drawn = now;
    this.#memory = m;
    this.node.dataset.kind = m.kind;
    const stranger = m.source.origin === 'tool' || m.source.origin === 'web';
    fill(this.#head,
      el('span', { class: 'chip', title: KINDS[m.kind] }, m.kind), m.pinned && el('span', { class: 'chip chip-accent', title: 'The model sees it in every turn' }, 'pinned'),
      stranger && el('span', { class: 'chip chip-warn', title: 'Strangers may have written it: the model is instructed not to follow instructions in it' }, 'from outside'),
      m.match && el('span', { class: 'chip', title: `Score ${m.score.toFixed(2)}` }, m.match === 'semantic' ? 'by meaning' : 'by words'),
      el('span', { class: 'grow' }), el('time', { class: 'faint tiny num', datetime: m.created, title: exact(m.created) }, ago(m.created)));
    this.#say();
    fill(this.#from, source(m, this.#app), outcome(m.outcome), m.updated && el('p', null, 'Changed ', el('time', { datetime: m.updated }, exact(m.updated))));
    this.#offer();
  }

  #say() {
    const { text } = this.#memory;
    const long = text.length > LONG;
    fill(this.#text, el('p', null, reveal(long && !this.#open ? `${text.slice(0, LONG)}…` : text)),
      long && el('button', { type: 'button', class: 'link-btn', 'aria-expanded': String(this.#open), on: { click: () => { this.#open = !this.#open; this.#say(); this.#text.querySelector('button').focus(); } } }, this.#open ? 'Show less' : 'Show all'));
  }

  #offer() {
    const m = this.#memory;
    const focused = this.#actions.contains(document.activeElement) ? document.activeElement.dataset.op : '';
    const of = m.text.slice(0, 60);
    const button = (op, label, click) => el('button', { type: 'button', class: 'btn btn-small btn-quiet', dataset: { op }, 'aria-label': `${label}: ${of}`, on: { click } }, label);
    fill(this.#actions,
      button('pin', m.pinned ? 'Unpin' : 'Pin', () => this.#pin()), button('correct', 'Correct…', () => this.#correct()), button('forget', 'Forget…', () => this.#forget()));
    if (focused) this.#back(focused);
  }

  #back(op) { this.#actions.querySelector(`[data-op="${op}"]`)?.focus(); }

  async #pin() {
    const pinned = !this.#memory.pinned;
    try {
      await this.#change('correctMemory', { pinned });
    } catch (e) {
      this.#question.fail(e);
      return;
    }
    this.#question.close();
    await this.#done('pin', pinned ? 'Pinned' : 'No longer pinned');
    this.#back('pin');
  }

  #correct() {
    const field = el('textarea', { class: 'input', rows: 4, 'aria-label': 'What it is to say' });
    field.value = this.#memory.text;
    this.#second('correct', 'Correct a memory', {
      field, tone: 'btn-primary', sure: 'Save', done: () => this.#done('correct', 'Corrected'),
      run: () => {
        const text = field.value.trim();
        if (!text) throw new Error('it must say something; to remove it, forget it');
        return this.#change('correctMemory', { text });
      },
    });
  }

  #forget() {
    this.#second('forget', 'Forget a memory', {
      text: 'Forget this? The agent no longer knows it, and it cannot be restored.', tone: 'btn-danger', sure: 'Forget it',
      run: () => this.#change('forgetMemory', {}), done: () => this.#done('forget', 'Forgotten'),
    });
  }

  #second(op, label, step) { this.#question.ask({ op, label, back: () => this.#back(op), ...step }); }

  #change(method, params) { return this.#app.rpc.call(method, { agent: this.#memory.agent, id: this.#memory.id, ...params }); }

  async #done(op, said) {
    this.#back(op);
    this.#app.announce(said);
    await this.#changed(op === 'forget' ? this.node : null);
  }
}

// source says who or what a memory is from. An address is text, not a link.
function source(m, app) {
  const { origin, principal, session, turn, tool, url } = m.source;
  const who = principal === app.principal.writer ? 'you' : principal ? reveal(principal) : 'a person';
  const from = {
    person: () => ['Said by ', who],
    agent: () => ['Worked out by the agent', principal && [', asked by ', who]],
    tool: () => ['From ', tool ? ['tool ', mono(tool)] : 'a tool', principal && [', asked by ', who]],
    web: () => ['From ', url ? mono(url) : 'the web', tool && [', by tool ', mono(tool)], principal && [', asked by ', who]],
  }[origin] ?? (() => [reveal(origin)]);
  return el('p', null, from(), session && [' in session ', el('a', { href: `#/${m.agent}/${session}` }, session), turn && ` (${turn})`]);
}

// outcome shows how the turn of an experience ended.
function outcome(o) {
  if (!o) return null;
  const failed = new Set(o.failed ?? []);
  return el('p', { class: 'memory-outcome' },
    el('span', { class: `chip ${o.status === 'answered' ? 'chip-ok' : 'chip-warn'}` }, o.status.replaceAll('_', ' ')),
    (o.tools ?? []).map((t) => el('span', { class: `chip mono ${failed.has(t) ? 'chip-danger' : ''}`, title: failed.has(t) ? 'It failed at least once' : null }, reveal(t), failed.has(t) && ' failed')),
    o.duration_ms > 0 && el('span', { class: 'num' }, duration(o.duration_ms)),
    o.cost_micro_usd > 0 && el('span', { class: 'num' }, `$${(o.cost_micro_usd / 1e6).toFixed(4)}`));
}
