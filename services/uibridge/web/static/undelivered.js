// One message to people that is not delivered: to whom, why not, and for those with the right
// "administer" what to do about it. Both operations need a second click.

import { el, fill, icon } from './dom.js';
import { ago, count, exact, time } from './fmt.js';
import { Question } from './question.js';
import { reveal } from './reveal.js';

const STATES = {
  dead: ['chip-danger', 'given up', 'It is not tried again, unless somebody decides so'],
  waiting: ['', 'waiting', 'To be sent, or sent again'],
  sending: ['chip-accent', 'sending', 'It is being sent, or it is being found out whether it was'],
};
const OPS = {
  resend: { label: 'Send again', tone: 'btn-primary', sure: 'Send it again', ask: 'If it was sent before, people will see it twice.', done: 'It is being sent again' },
  drop: { label: 'Drop', tone: 'btn-danger', sure: 'Drop it', ask: 'It will not be delivered, and cannot be restored.', done: 'It was dropped' },
};
const LONG = 480; // characters after which a text is folded

// UndeliveredCard shows a message; it calls changed after an operation.
export class UndeliveredCard {
  #app; #changed;
  #head; #about; #text; #actions; #question = new Question();
  #drawn = '';
  #shown = null;
  #open = false;

  constructor(app, changed) {
    this.#app = app;
    this.#changed = changed;
    this.#head = el('div', { class: 'row' });
    this.#about = el('div', { class: 'plugin-about' });
    this.#text = el('div', { class: 'memory-text', dir: 'auto' });
    this.#actions = el('div', { class: 'row' });
    this.node = el('li', { class: 'card undelivered-card' }, this.#head, this.#about, this.#text, this.#actions, this.#question.node);
  }

  // show draws the message. It does not change an operation in progress, unless that is no longer
  // possible.
  show(m) {
    const now = JSON.stringify([m, ago(m.stored)]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    this.#shown = m;
    this.node.dataset.state = m.state;
    const [tone, label, title] = STATES[m.state] ?? ['', m.state, ''];
    fill(this.#head, el('h3', { class: 'clip', title: m.to }, el('span', { class: 'visually-hidden' }, 'To '), reveal(m.to)),
      el('span', { class: 'chip' }, m.kind), el('span', { class: 'grow' }),
      el('time', { class: 'faint tiny num', datetime: m.stored, title: `To be delivered since ${exact(m.stored)}` }, ago(m.stored)),
      el('span', { class: `chip ${tone}`, title }, el('span', { class: 'dot', 'aria-hidden': 'true' }), label));
    fill(this.#about,
      el('p', { class: 'muted small' }, 'By ', reveal(m.via), ', of session ', el('a', { href: `#/${m.agent}/${m.session}` }, `${m.agent}/${m.session}`),
        m.attempts > 0 && `, ${count(m.attempts, 'failed attempt')}`, m.state === 'waiting' && time(m.next) && [', next try ', el('time', { datetime: m.next, title: exact(m.next) }, time(m.next))], '.'),
      m.error && el('p', { class: `note ${m.state === 'dead' ? 'note-danger' : 'note-warn'}` }, icon('warn'), el('span', null, reveal(m.error))));
    this.#say();
    this.#offer(m);
  }

  #say() {
    const { text } = this.#shown;
    const long = text.length > LONG;
    fill(this.#text, el('p', null, reveal(long && !this.#open ? `${text.slice(0, LONG)}…` : text)),
      long && el('button', { type: 'button', class: 'link-btn', 'aria-expanded': String(this.#open), on: { click: () => { this.#open = !this.#open; this.#say(); this.#text.querySelector('button').focus(); } } }, this.#open ? 'Show less' : 'Show all'));
  }

  #offer(m) {
    const ops = !this.#app.can('administer') ? [] : { dead: ['resend', 'drop'], waiting: ['drop'] }[m.state] ?? [];
    const focused = this.#actions.contains(document.activeElement) ? document.activeElement.dataset.op : '';
    fill(this.#actions, ops.map((op) => el('button', {
      type: 'button', class: `btn btn-small ${op === 'drop' ? 'btn-quiet' : ''}`, dataset: { op }, 'aria-label': `${OPS[op].label} the message to ${m.to}…`, on: { click: () => this.#confirm(op) },
    }, `${OPS[op].label}…`)));
    this.#actions.hidden = ops.length === 0;
    if (focused) this.#back(focused);
    if (this.#question.op && !ops.includes(this.#question.op)) this.#question.close();
  }

  #back(op) { this.#actions.querySelector(`[data-op="${op}"]`)?.focus(); }

  #confirm(op) {
    const { label, tone, sure, ask } = OPS[op];
    this.#question.ask({
      op, label, tone, sure, text: ask, back: () => this.#back(op), run: () => this.#app.rpc.call('outboxAction', { op, id: this.#shown.id }),
      done: async () => {
        this.#back(op);
        this.#app.announce(OPS[op].done);
        await this.#changed();
        this.#app.faults.refresh();
      },
    });
  }
}
