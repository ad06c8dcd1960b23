// The system, for operators: what is wrong, the listeners, the messages to people that are not delivered, and, for
// those who may administer, who from outside may connect. Reloaded every few seconds while visible.

import { el, fill, icon } from './dom.js';
import { count } from './fmt.js';
import { every, failure, old } from './facts.js';
import { IdentityCard } from './identity.js';
import { ListenerCard } from './listener.js';
import { UndeliveredCard } from './undelivered.js';
import { reveal } from './reveal.js';

const REFRESH = 4000; // ms

// mount puts the system into root, an empty tab panel.
export function mount(root, app) {
  const faults = el('ul', { class: 'system-faults', 'aria-label': 'Problems', hidden: true });
  const listeners = new Section('Listeners', 'They turn messages, devices and times into inputs, and deliver answers.', {
    load: async () => ({ rows: await app.rpc.call('listListeners', {}) }),
    key: (l) => `${l.listener} ${l.instance}`, make: () => new ListenerCard(app, () => refresh()),
    say: ({ rows }) => (rows.length ? `${rows.filter((l) => l.state === 'ok').length} of ${count(rows.length, 'listener')} ok.` : ''),
    empty: ['No listener is running. Add some to the section ', el('code', null, 'listeners'), ' of the configuration.'],
  });
  const outbox = new Section('Outbox', 'Messages to people that are not delivered: those that were given up first.', {
    load: async () => {
      const { messages, more } = await app.rpc.call('listOutbox', {});
      return { rows: [...messages].sort((a, b) => (b.state === 'dead') - (a.state === 'dead')), more };
    },
    key: (m) => m.id, make: (change) => new UndeliveredCard(app, change),
    say: ({ rows, more }) => {
      const dead = rows.filter((m) => m.state === 'dead').length;
      return rows.length ? `${dead ? `${dead} given up, ` : ''}${rows.length - dead} waiting${more ? ', and more' : ''}.` : '';
    },
    empty: ['Everything is delivered.'],
  });
  const identities = app.can('administer') && new Section('Identities', 'Plugins, listeners and programs from outside, and what they may do on the bus.', {
    load: async () => {
      const { identities: rows, rights } = await app.rpc.call('listIdentities', {});
      identities.node.hidden = !rights; // without rights there are no identities
      return { rows };
    },
    key: (id) => id.charter.name, make: (change) => new IdentityCard(app, change),
    say: ({ rows }) => (rows.length ? `${rows.filter((id) => id.connected > 0).length} of ${rows.length} connected.` : ''),
    empty: ['Nobody is invited. In a terminal, ', el('code', null, 'skandha plugins invite NAME'), ' invites a plugin or listener.'],
  });
  const sections = [listeners, outbox, identities].filter(Boolean);
  const refresh = every(root, REFRESH, () => Promise.all([app.faults.refresh(), ...sections.map((s) => s.refresh())]));
  app.faults.onChange((list) => {
    faults.hidden = list.length === 0;
    fill(faults, list.map((f) => el('li', { class: 'note note-danger' }, icon('warn'), el('span', null, reveal(f.message)))));
  });
  root.classList.add('ins', 'ins-system');
  root.append(faults, ...sections.map((s) => s.node));
}

// Section is a heading with a list of cards, which keep what was begun in them.
class Section {
  #of; #said; #note; #list; #empty;
  #cards = new Map();
  #read = false;

  constructor(title, about, of) {
    this.#of = of;
    const id = `system-${title.toLowerCase()}`;
    this.#said = el('p', { class: 'muted small', role: 'status' });
    this.#note = el('div', { class: 'system-note' });
    this.#list = el('ul', { class: 'cards', 'aria-labelledby': id });
    this.#empty = el('p', { class: 'system-empty muted', hidden: true }, of.empty);
    this.node = el('section', { class: 'system', 'aria-labelledby': id },
      el('h2', { id, tabindex: -1 }, title), el('p', { class: 'muted small' }, about), this.#said, this.#note, this.#empty, this.#list);
  }

  async refresh() {
    let got;
    try {
      got = await this.#of.load();
    } catch (e) {
      fill(this.#note, this.#read ? old(e) : failure(e, () => this.refresh()));
      return;
    }
    this.#read = true;
    this.#note.replaceChildren();
    const said = this.#of.say(got);
    if (this.#said.textContent !== said) this.#said.textContent = said; // or else it is announced again
    this.#empty.hidden = got.rows.length > 0;
    const there = new Set(got.rows.map(this.#of.key));
    for (const [key, card] of this.#cards) if (!there.has(key)) this.#remove(key, card);
    got.rows.forEach((row, i) => {
      const key = this.#of.key(row);
      if (!this.#cards.has(key)) this.#cards.set(key, this.#of.make(() => this.refresh()));
      const card = this.#cards.get(key);
      card.show(row);
      if (this.#list.children[i] !== card.node) this.#list.insertBefore(card.node, this.#list.children[i] ?? null);
    });
  }

  // #remove removes a card. The focus, if it is there, goes to the card that takes its place.
  #remove(key, card) {
    const at = card.node.contains(document.activeElement) ? [...this.#list.children].indexOf(card.node) : -1;
    card.node.remove();
    this.#cards.delete(key);
    if (at < 0) return;
    const next = this.#list.children[Math.min(at, this.#list.children.length - 1)];
    (next?.querySelector('button, summary') ?? this.node.querySelector('h2')).focus();
  }
}
