// What the agent of the shown session remembers: a list that is reloaded every few seconds and
// after each turn, or what matches a search, which is run only when asked for, since it may
// cost money.

import { el, fill, icon } from './dom.js';
import { count } from './fmt.js';
import { every, failure, field, old } from './facts.js';
import { MemoryCard } from './memorycard.js';
import { memories } from './pages.js';
import { reveal } from './reveal.js';
import { refusal } from './words.js';

const REFRESH = 5000; // ms
const PAGE = 20;
const TYPED = 400; // ms after the last key until a search starts
const SETTLED = 700; // ms after a turn until what it taught is stored
const KINDS = { fact: 'Facts', note: 'Notes', experience: 'Experiences', lesson: 'Lessons', capability: 'Capabilities' };

// mount puts the memory into root, an empty tab panel.
export function mount(root, app) {
  const view = new View(root, app);
  const refresh = every(root, REFRESH, () => (view.searches ? undefined : view.load()));
  app.on('onTurnEnd', () => setTimeout(() => root.hidden || refresh(), SETTLED));
  app.onSession(() => view.switched());
}

class View {
  #root; #app;
  #search; #kind; #list; #more; #note; #said; #empty;
  #cards = new Map();
  #agent = '';
  #many = PAGE;
  #asked = 0;
  #drawn = false;
  #timer = 0;

  constructor(root, app) {
    this.#root = root;
    this.#app = app;
    this.#agent = app.session().agent;
    this.#search = el('input', {
      type: 'search', class: 'input', placeholder: 'Search memories…', autocomplete: 'off', spellcheck: 'false',
      on: { input: () => this.#typed(TYPED), keydown: (e) => e.key === 'Enter' && this.#typed(0) },
    });
    this.#kind = el('select', { class: 'input', on: { change: () => this.#restart() } },
      el('option', { value: '' }, 'All kinds'), Object.entries(KINDS).map(([kind, label]) => el('option', { value: kind }, label)));
    this.#said = el('p', { class: 'muted small', role: 'status' });
    this.#note = el('div');
    this.#list = el('ul', { class: 'cards', 'aria-label': 'Memories' });
    this.#empty = el('div', { class: 'empty', hidden: true });
    this.#more = el('div', { class: 'ins-more', hidden: true }, el('button', { type: 'button', class: 'btn btn-small', on: { click: () => { this.#many += PAGE; this.load(); } } }, 'Show more'));
    root.classList.add('ins', 'ins-memory');
    root.append(
      el('div', { class: 'ins-head' }, el('div', { class: 'row' }, field('Search memories', this.#search), el('div', { class: 'ins-sort' }, field('Kind', this.#kind))), this.#said, app.can('talk') && this.#form()),
      this.#note, this.#empty, this.#list, this.#more);
  }

  // searches reports whether what matches a search is shown.
  get searches() { return this.#search.value.trim() !== ''; }

  // switched forgets the memories of another agent.
  switched() {
    const { agent } = this.#app.session();
    if (agent === this.#agent) return;
    this.#agent = agent;
    this.#search.value = '';
    this.#restart();
  }

  #restart() {
    this.#many = PAGE;
    this.#drawn = false;
    this.#cards.clear();
    this.#list.replaceChildren();
    if (!this.#root.hidden) this.load();
  }

  #typed(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.load(), ms);
  }

  // load asks for the memories and draws them, unless it is called again meanwhile.
  async load() {
    clearTimeout(this.#timer);
    const asked = ++this.#asked;
    const text = this.#search.value.trim();
    const about = { agent: this.#agent, ...(this.#kind.value && { kinds: [this.#kind.value] }) };
    try {
      const { rpc } = this.#app;
      const got = text ? await rpc.call('searchMemories', { ...about, text }) : await memories(rpc, about, this.#many);
      if (asked === this.#asked) this.#draw(got.hits ?? got.rows, got, text);
    } catch (e) {
      if (asked === this.#asked) fill(this.#note, this.#drawn ? old(e) : failure(e, () => this.load()));
    }
  }

  #draw(rows, { next, embedder, trouble }, text) {
    this.#drawn = true;
    fill(this.#note, trouble && el('p', { class: 'note note-warn' }, icon('warn'), el('span', null, reveal(trouble))));
    const said = `${text ? `${rows.length || 'Nothing'} found.` : rows.length ? `${count(rows.length, 'memory', 'memories')}${next ? ', and more' : ''}.` : ''} Search is ${embedder ? `semantic, with ${embedder}` : 'by words alone'}.`.trim();
    if (this.#said.textContent !== said) this.#said.textContent = said; // or else it is announced again
    const there = new Set(rows.map((m) => m.id));
    for (const [id, card] of this.#cards) if (!there.has(id)) { card.node.remove(); this.#cards.delete(id); }
    rows.forEach((m, i) => {
      if (!this.#cards.has(m.id)) this.#cards.set(m.id, new MemoryCard(this.#app, (gone) => this.#changed(gone)));
      const card = this.#cards.get(m.id);
      card.show(m);
      if (this.#list.children[i] !== card.node) this.#list.insertBefore(card.node, this.#list.children[i] ?? null);
    });
    this.#more.hidden = !next;
    this.#empty.hidden = rows.length > 0;
    if (!rows.length) fill(this.#empty, this.#nothing(text));
  }

  #nothing(text) {
    if (text) return el('p', null, 'Nothing that the agent remembers matches.');
    if (this.#kind.value) return el('p', null, `The agent has no ${KINDS[this.#kind.value].toLowerCase()}.`);
    return [el('h3', null, 'The agent remembers nothing yet'),
      el('p', null, 'Set ', el('code', null, 'memory_policy: vector-db'), ` for agent ${this.#agent} in the configuration, and it learns from each turn.`, this.#app.can('talk') && ' You can also add something yourself.')];
  }

  // #changed reloads after a card's change. The focus goes to the card that takes the place
  // of one that is gone.
  async #changed(gone) {
    const at = gone ? [...this.#list.children].indexOf(gone) : -1;
    await this.load();
    if (at >= 0) (this.#list.children[Math.min(at, this.#list.children.length - 1)]?.querySelector('button') ?? this.#search).focus();
  }

  // #form is where somebody adds a memory. A text that could not be sent stays.
  #form() {
    const id = () => `web-${Array.from(crypto.getRandomValues(new Uint8Array(16)), (n) => n.toString(16).padStart(2, '0')).join('')}`;
    let next = id(); // sent again with a text that may have been stored
    const text = el('textarea', { class: 'input', rows: 2, maxlength: 4000, placeholder: 'What the agent is to remember', on: { input: () => { next = id(); }, keydown: (e) => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) add(); } } });
    const pin = el('input', { type: 'checkbox' });
    const why = el('div');
    const add = async () => {
      const say = text.value.trim();
      if (!say || go.disabled) return text.focus();
      go.disabled = true;
      try {
        await this.#app.rpc.call('addMemory', { agent: this.#agent, text: say, pinned: pin.checked, id: next });
        [text.value, pin.checked, next] = ['', false, id()];
        why.replaceChildren();
        this.#app.announce('Remembered');
        await this.load();
      } catch (e) {
        fill(why, el('p', { class: 'note note-danger', role: 'alert' }, icon('warn'), el('span', null, reveal(refusal(e)))));
      } finally {
        go.disabled = false;
      }
      return text.focus();
    };
    const go = el('button', { type: 'button', class: 'btn btn-small btn-primary', on: { click: add } }, 'Remember');
    return el('details', { class: 'fold memory-add' }, el('summary', null, icon('chevron'), el('span', null, 'Add a memory')),
      el('div', { class: 'memory-form' }, field('What the agent is to remember', text), why,
        el('div', { class: 'row' }, el('label', { class: 'row small' }, pin, 'Pinned: show it to the model in every turn'), el('span', { class: 'grow' }), go)));
  }
}
