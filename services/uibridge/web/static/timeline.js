// The turns of a session, and one of them as a waterfall: what took how long, what waited
// for what, who was asked. A click or the arrow keys select a row; its details are shown
// below.

import { el, fill, icon, iconButton } from './dom.js';
import { ago, count, duration, exact, timeSeconds } from './fmt.js';
import { failure } from './facts.js';
import { reveal } from './reveal.js';
import { Waterfall } from './waterfall.js';

const PAGE = 30;
const REFRESH = 2500; // ms, while a turn runs

// mount puts the view into root, an empty tab panel.
export function mount(root, app) {
  return new TimelineView(root, app);
}

class TimelineView {
  #root;
  #app;
  #visible = false;
  #turn = ''; // the turn that is shown; '' shows the list
  #turns = [];
  #next = '';
  #cut = '';
  #timeline = null;
  #waterfall;
  #timer = 0;
  #asked = 0; // so that late responses are not drawn
  #news = 1; // counts changes since the list was loaded
  #read = 0; // the value of #news when the shown list was requested
  #session = '';
  #list; #more; #one; #title; #facts; #note; #head;

  constructor(root, app) {
    this.#root = root;
    this.#app = app;
    root.classList.add('ins', 'ins-timeline');
    this.#waterfall = new Waterfall(app);
    this.#build();
    root.addEventListener('show', () => { this.#visible = true; this.#refresh(); });
    root.addEventListener('hide', () => { this.#visible = false; clearTimeout(this.#timer); });
    app.onSession(() => this.#another());
    app.onTurn((turn) => this.#open(turn));
    app.on('onCommit', (c) => this.#happened(c));
    if (app.turn()) this.#open(app.turn());
  }

  #build() {
    this.#list = el('ol', { class: 'turns', 'aria-label': 'Turns, the latest first', on: { keydown: (e) => this.#listKeys(e) } });
    this.#more = el('div', { class: 'ins-more' });
    this.#title = el('h3', { tabindex: -1 });
    this.#facts = el('p', { class: 'muted small' });
    this.#note = el('div');
    this.#head = el('div', { class: 'ins-head' },
      el('div', { class: 'row' },
        iconButton('chevron', 'All turns', () => this.#close(), { class: 'icon-btn back' }),
        el('div', { class: 'grow' }, this.#title, this.#facts),
        iconButton('chevron', 'Previous turn', () => this.#step(1), { class: 'icon-btn up' }),
        iconButton('chevron', 'Next turn', () => this.#step(-1), { class: 'icon-btn down' })));
    this.#one = el('div', { class: 'turn-view', hidden: true }, this.#head, this.#note, this.#waterfall.node);
    this.#root.append(el('div', { class: 'turn-list' }, this.#list, this.#more), this.#one);
  }

  // Another session is shown, or this one from another place.
  #another() {
    const { agent, session } = this.#app.session();
    this.#news++;
    if (this.#session !== `${agent}/${session}`) {
      this.#session = `${agent}/${session}`;
      this.#turns = [];
      this.#next = '';
      this.#show('');
      this.#list.replaceChildren();
      this.#more.replaceChildren();
    }
    if (this.#visible) this.#refresh();
  }

  #happened(commit) {
    this.#news++;
    if (!this.#visible) return;
    const about = !this.#turn || commit.turn === this.#turn || (commit.events ?? []).some((e) => e.turn === this.#turn);
    if (about && !this.#timer) this.#timer = setTimeout(() => this.#refresh(), 250);
  }

  // refresh reloads what is shown.
  async #refresh() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    if (!this.#visible) return;
    const mine = ++this.#asked;
    try {
      if (this.#turn) await this.#readTurn(mine);
      else if (this.#read !== this.#news) await this.#readTurns(mine);
    } catch (e) {
      if (mine === this.#asked) this.#failed(e);
    }
    const open = this.#turn ? this.#timeline?.outcome === 'running' || this.#timeline?.outcome === 'queued' : false;
    if (mine === this.#asked && this.#visible && open && !this.#timer) this.#timer = setTimeout(() => this.#refresh(), REFRESH);
  }

  #failed(e) {
    if (this.#turn ? this.#timeline : this.#turns.length) {
      fill(this.#turn ? this.#note : this.#more, el('p', { class: 'note note-warn', role: 'alert' }, icon('warn'), el('span', null, reveal(`This may be outdated: ${e.message}`))));
      this.#timer ||= setTimeout(() => this.#refresh(), 3000);
      return;
    }
    const target = this.#turn ? this.#note : this.#more;
    fill(target, failure(e, () => { target.replaceChildren(); this.#refresh(); }));
  }

  // ---- the list

  async #readTurns(mine) {
    const session = this.#app.session();
    if (!session.session) return;
    const news = this.#news; // changes during the request may not be in it
    const page = await this.#app.rpc.call('listTurns', { ...session, limit: PAGE });
    if (mine !== this.#asked) return;
    this.#read = news;
    const known = new Set(page.turns.map((t) => t.turn));
    const older = this.#turns.filter((t) => !known.has(t.turn));
    const joined = page.turns.length && older.length && older[0].sequence < page.turns[page.turns.length - 1].sequence;
    this.#turns = joined ? [...page.turns, ...older] : page.turns;
    if (!joined) { this.#next = page.next ?? ''; this.#cut = page.cut ?? ''; }
    this.#drawTurns();
  }

  async #readMore() {
    const mine = ++this.#asked;
    try {
      const page = await this.#app.rpc.call('listTurns', { ...this.#app.session(), limit: PAGE, before: this.#next });
      if (mine !== this.#asked) return;
      const known = new Set(this.#turns.map((t) => t.turn));
      this.#turns.push(...page.turns.filter((t) => !known.has(t.turn)));
      this.#next = page.next ?? '';
      this.#cut = page.cut ?? '';
      this.#drawTurns();
      this.#app.announce(`${count(page.turns.length, 'older turn')} loaded`);
    } catch (e) {
      this.#failed(e);
    }
  }

  #drawTurns() {
    const focused = this.#list.contains(document.activeElement) ? document.activeElement.dataset.turn : '';
    fill(this.#list, this.#turns.map((t, i) => el('li', null, this.#turnButton(t, i === 0))));
    if (focused) this.#list.querySelector(`[data-turn="${CSS.escape(focused)}"]`)?.focus();
    fill(this.#more,
      this.#turns.length === 0 && el('div', { class: 'empty' }, el('h3', null, 'No turns yet'), el('p', null, 'Each input begins a turn. Turns are shown here, with every question to the model, decision and tool call.')),
      this.#cut && el('p', { class: 'note' }, icon('info'), el('span', null, this.#cut)),
      this.#next && el('button', { type: 'button', class: 'btn btn-small', on: { click: () => this.#readMore() } }, 'Older turns'));
  }

  #turnButton(t, first) {
    const parts = [
      t.duration_ms > 0 && duration(t.duration_ms), t.rounds > 0 && count(t.rounds, 'round'), t.calls > 0 && count(t.calls, 'call'), t.tokens > 0 && `${t.tokens} tokens`,
    ].filter(Boolean);
    return el('button', {
      type: 'button', class: 'turn-row', tabindex: first ? 0 : -1, dataset: { turn: t.turn }, title: t.reason || null, on: { click: () => this.#app.openTurn(t.turn) },
    },
    el('span', { class: 'row' }, el('span', { class: 'grow clip turn-text' }, t.text ? reveal(t.text) : el('span', { class: 'faint' }, t.turn)), outcome(t.outcome)),
    el('span', { class: 'row muted tiny num' }, el('span', { class: 'grow clip' }, parts.join(' · ') || t.turn), el('time', { datetime: t.started ?? '', title: exact(t.started) }, ago(t.started))));
  }

  #listKeys(event) {
    const buttons = [...this.#list.querySelectorAll('.turn-row')];
    const at = buttons.indexOf(event.target.closest('.turn-row'));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = buttons[Math.min(Math.max(to, 0), buttons.length - 1)];
    for (const b of buttons) b.tabIndex = b === next ? 0 : -1;
    next.focus();
  }

  // ---- one turn

  #show(turn) {
    this.#turn = turn;
    this.#timeline = null;
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#root.querySelector('.turn-list').hidden = turn !== '';
    this.#one.hidden = turn === '';
    this.#note.replaceChildren();
    this.#waterfall.clear();
  }

  #open(turn) {
    if (turn === this.#turn && this.#timeline) { this.#refresh(); return; }
    this.#show(turn);
    fill(this.#title, `Turn ${turn}`);
    fill(this.#facts, 'Loading…');
    this.#refresh();
    this.#title.focus({ preventScroll: true });
  }

  #close() {
    const was = this.#turn;
    this.#show('');
    this.#news++;
    this.#refresh().then(() => (this.#list.querySelector(`[data-turn="${CSS.escape(was)}"]`) ?? this.#list.querySelector('.turn-row'))?.focus());
  }

  async #step(by) {
    if (this.#read !== this.#news || !this.#turns.length) {
      try {
        const news = this.#news;
        const page = await this.#app.rpc.call('listTurns', { ...this.#app.session(), limit: 100 });
        this.#turns = page.turns;
        this.#next = page.next ?? '';
        this.#read = news;
      } catch (e) {
        this.#failed(e);
        return;
      }
    }
    const to = this.#turns[this.#turns.findIndex((t) => t.turn === this.#turn) + by];
    if (to) this.#app.openTurn(to.turn);
    else this.#app.announce(by > 0 ? 'This is the first known turn.' : 'This is the latest turn.');
  }

  async #readTurn(mine) {
    const turn = this.#turn;
    const timeline = await spanning(this.#app.rpc, await this.#app.rpc.call('getTimeline', { ...this.#app.session(), turn }));
    if (mine !== this.#asked || turn !== this.#turn) return;
    this.#timeline = timeline;
    fill(this.#title, timeline.text ? el('span', { class: 'clip', title: timeline.text.slice(0, 1000) }, reveal(timeline.text.slice(0, 300))) : `Turn ${turn}`);
    fill(this.#facts,
      outcome(timeline.outcome), ' ', `${duration(timeline.duration_ms)}, from ${timeSeconds(timeline.started)}`, timeline.writer && ` by ${timeline.writer}`, timeline.source && ` (${timeline.source})`, ` · ${turn} · `,
      el('button', { type: 'button', class: 'link-btn', on: { click: () => this.#app.showTurn(turn) } }, 'in the conversation'));
    fill(this.#note,
      timeline.reason && el('p', { class: 'note note-warn' }, icon('warn'), el('span', null, reveal(timeline.reason))),
      (timeline.cut ?? []).map((c) => el('p', { class: 'note' }, icon('info'), el('span', null, c))));
    this.#waterfall.show(timeline);
  }
}

const MOST_BELOW = 8; // sessions whose turns are shown under one turn
const DEEPEST = 3;

// spanning adds to a timeline those of the tasks that its calls have given, under the calls.
async function spanning(rpc, timeline, depth = 1) {
  const under = new Map();
  const tasks = timeline.spans.filter((s) => s.kind === 'step' && s.detail.works).slice(0, MOST_BELOW);
  await Promise.all(tasks.map(async ({ id, detail: { works } }) => {
    try {
      const { turns, next } = await rpc.call('listTurns', { ...works, limit: 100 });
      if (!turns.length || next) return; // the task is the first turn
      let child = await rpc.call('getTimeline', { ...works, turn: turns.at(-1).turn });
      if (depth < DEEPEST) child = await spanning(rpc, child, depth + 1);
      const shift = (Date.parse(child.started) - Date.parse(timeline.started)) * 1000;
      const name = (of) => `${works.session} ${of}`;
      under.set(id, child.spans.map((s) => ({ ...s, id: name(s.id), parent: s.parent ? name(s.parent) : id, start_us: Math.max(s.start_us + shift, 0) })));
    } catch {
      // It may not be seen, or is not stored yet.
    }
  }));
  return { ...timeline, spans: timeline.spans.flatMap((s) => [s, ...(under.get(s.id) ?? [])]) };
}

// outcome shows how a turn ended, as a chip.
export function outcome(o) {
  const tone = { answered: 'chip-ok', command: 'chip-ok', running: 'chip-accent', queued: 'chip-accent', cancelled: 'chip-warn', interrupted: 'chip-warn', reset: 'chip-warn', duplicate_of: 'chip-warn' }[o] ?? 'chip-danger';
  return el('span', { class: `chip ${tone}` }, o === 'running' && el('span', { class: 'spinner', 'aria-hidden': 'true' }), String(o).replaceAll('_', ' '));
}
