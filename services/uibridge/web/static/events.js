// The live event view: every decision of core as it arrives, in lanes, in plain
// sentences. Each row opens to its JSON and the plugins' answers. The numbers of kept
// and of drawn rows are bounded, so that thousands of events stay smooth.

import { el, icon } from './dom.js';
import { timeSeconds, exact, count } from './fmt.js';
import { facts, jsonBlock, mono, verdicts, field } from './facts.js';
import { reveal } from './reveal.js';
import { recall, remember } from './store.js';
import { LANES, LANE_LABEL, Describer, particulars } from './describe.js';

const KEPT = 5000; // rows
const DRAWN = 300; // at the end, when following
const MORE = 200; // that are unfolded at a time
const MOST_DRAWN = 1200;
const TONES = { ok: '✓', warn: '!', bad: '✕' };

// mount puts the view into root, an empty tab panel.
export function mount(root, app) {
  const view = new Events(root, app);
  app.on('onCommit', (commit) => view.commit(commit));
  app.onSession(() => view.clear());
  return view;
}

class Events {
  #root;
  #app;
  #describer = new Describer();
  #rows = []; // kept, oldest first
  #dropped = 0; // rows that are no longer kept
  #next = 0; // number of the next row
  #shown = []; // those that pass the filter, oldest first
  #from = 0; // the first of #shown that is drawn
  #to = 0; // after the last one
  #following = true;
  #paused = false; // by the button: scrolling to the end does not resume
  #visible = false;
  #queued = [];
  #frame = 0;
  #lanes = new Set(recall('events.lanes', LANES.map(([name]) => name).filter((n) => n !== 'ui')));
  #text = '';
  #counts = new Map();
  #list; #older; #newer; #follow; #chips = new Map(); #empty;

  constructor(root, app) {
    this.#root = root;
    this.#app = app;
    root.classList.add('ins', 'ins-events');
    root.append(this.#head(), this.#body());
    root.addEventListener('show', () => { this.#visible = true; this.#draw(); });
    root.addEventListener('hide', () => { this.#visible = false; });
    this.#sayCounts();
  }

  // commit adds a commit as the bridge sends it.
  commit(commit) {
    this.#queued.push(commit);
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#flush());
  }

  // clear removes everything: the log is about to be sent again.
  clear() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#queued = [];
    this.#rows = [];
    this.#dropped = 0;
    this.#counts.clear();
    this.#describer.forget();
    this.#setFollowing(true);
    this.#filter();
  }

  #flush() {
    this.#frame = 0;
    const commits = this.#queued;
    this.#queued = [];
    let added = 0;
    for (const commit of commits) {
      for (const row of this.#describer.rows(commit)) {
        row.n = this.#next++;
        row.commit = commit;
        this.#rows.push(row);
        this.#counts.set(row.lane, (this.#counts.get(row.lane) ?? 0) + 1);
        if (this.#passes(row)) { this.#shown.push(row); added++; }
      }
    }
    this.#forgetOld();
    this.#sayCounts();
    if (!added) return;
    if (this.#following) this.#to = this.#shown.length;
    this.#draw();
  }

  #forgetOld() {
    const over = this.#rows.length - KEPT;
    if (over <= 0) return;
    const first = this.#rows[over].n;
    for (const row of this.#rows.splice(0, over)) this.#counts.set(row.lane, this.#counts.get(row.lane) - 1);
    this.#dropped += over;
    let gone = this.#shown.findIndex((row) => row.n >= first);
    if (gone < 0) gone = this.#shown.length;
    this.#shown.splice(0, gone);
    this.#from = Math.max(0, this.#from - gone);
    this.#to = Math.max(this.#from, this.#to - gone);
  }

  #passes(row) {
    if (!this.#lanes.has(row.lane)) return false;
    if (!this.#text) return true;
    row.search ??= `${row.text} ${row.name} ${row.turn} ${JSON.stringify(row.event?.data ?? row.verdict ?? '').slice(0, 4000)}`.toLowerCase();
    return row.search.includes(this.#text);
  }

  #filter() {
    this.#shown = this.#rows.filter((row) => this.#passes(row));
    this.#to = this.#shown.length;
    this.#from = Math.max(0, this.#to - DRAWN);
    this.#list.replaceChildren();
    this.#sayCounts();
    this.#draw();
  }

  // draw updates the list to the window [from, to).
  #draw() {
    if (!this.#visible) return;
    if (this.#following) {
      this.#to = this.#shown.length;
      this.#from = Math.max(Math.min(this.#from, this.#to), this.#to - DRAWN, 0);
    }
    const want = this.#shown.slice(this.#from, this.#to);
    const there = new Map([...this.#list.children].map((li) => [Number(li.dataset.n), li]));
    const first = want.length ? want[0].n : Infinity;
    const last = want.length ? want[want.length - 1].n : -1;
    for (const [n, li] of there) if (n < first || n > last) li.remove();
    let at = this.#list.firstElementChild;
    let commit = null;
    for (const row of want) {
      const begins = row.commit !== commit;
      commit = row.commit;
      if (at && Number(at.dataset.n) === row.n) {
        this.#setBegins(at, row, begins);
        at = at.nextElementSibling;
      } else {
        const li = this.#item(row);
        this.#setBegins(li, row, begins);
        this.#list.insertBefore(li, at);
      }
    }
    this.#rove();
    const older = this.#from;
    this.#older.hidden = older === 0 && this.#dropped === 0;
    this.#older.firstChild.hidden = older === 0;
    this.#older.firstChild.textContent = `Show ${Math.min(MORE, older)} of ${count(older, 'older event')}`;
    this.#older.lastChild.textContent = this.#dropped ? `${count(this.#dropped, 'event')} before these are only in the log.` : '';
    const newer = this.#shown.length - this.#to;
    this.#newer.hidden = this.#following;
    this.#newer.lastChild.textContent = newer ? `${newer} new: follow` : 'Follow';
    this.#empty.hidden = want.length > 0;
    this.#empty.lastChild.textContent = this.#rows.length ? 'No event matches the filter.' : 'Send an input and watch the agent: what it receives, asks the model, may do and does appears here, one line each.';
    if (this.#following) this.#list.parentNode.scrollTop = this.#list.parentNode.scrollHeight;
  }

  // The first row of a commit has a line with its time and trigger.
  #setBegins(li, row, begins) {
    const has = li.firstElementChild.classList.contains('ev-commit');
    if (begins === has) return;
    if (!begins) { li.firstElementChild.remove(); return; }
    const c = row.commit;
    const turn = c.turn || row.turn;
    li.prepend(el('div', { class: 'ev-commit' },
      el('time', { datetime: c.time ?? '', title: exact(c.time) }, timeSeconds(c.time)), el('span', { class: 'clip' }, `decided on ${this.#describer.trigger(c.trigger)}`), el('span', { class: 'grow' }),
      turn && el('button', { type: 'button', class: 'link-btn', title: `Show turn ${turn} as a timeline`, 'aria-label': `Timeline of turn ${turn}`, tabindex: -1, on: { click: () => this.#app.openTurn(turn) } }, turn),
      el('span', { class: 'faint num', title: 'The commit’s sequence in the log' }, `#${c.commit}`)));
  }

  #item(row) {
    const id = `ev-${row.n}`;
    const head = el('button', {
      type: 'button', class: 'ev-head', tabindex: -1, 'aria-expanded': 'false', on: { click: () => this.#toggle(li, row) },
    }, el('span', { class: 'ev-lane' }, LANE_LABEL[row.lane]), el('span', { class: 'ev-text' }, TONES[row.tone] && el('span', { class: 'ev-tone', 'aria-hidden': 'true' }, TONES[row.tone]), reveal(row.text)), icon('chevron'));
    const li = el('li', { class: 'ev', id, dataset: { n: row.n, lane: row.lane, tone: row.tone || 'plain' } }, head);
    return li;
  }

  #toggle(li, row) {
    const head = li.querySelector('.ev-head');
    const open = head.getAttribute('aria-expanded') !== 'true';
    head.setAttribute('aria-expanded', String(open));
    li.querySelector('.ev-detail')?.remove();
    if (!open) { head.removeAttribute('aria-controls'); return; }
    this.#setFollowing(false);
    const detail = this.#detail(row);
    detail.id = `${li.id}-detail`;
    head.setAttribute('aria-controls', detail.id);
    li.append(detail);
    detail.scrollIntoView({ block: 'nearest' });
    head.scrollIntoView({ block: 'nearest' }); // keep the row itself in view
  }

  #detail(row) {
    const { commit, event, verdict } = row;
    const call = event?.data?.call ?? event?.data?.confirmation_id;
    const asked = verdict ? [verdict] : [...row.hooks, ...(commit.hooks ?? []).filter((v) => v.step && v.step === call && !row.hooks.includes(v))];
    return el('div', { class: 'ev-detail' },
      facts([
        ['What', event ? mono(event.type) : 'a plugin’s answer'],
        ...(event ? particulars(event) : []),
        ['Turn', row.turn && el('button', { type: 'button', class: 'link-btn', on: { click: () => this.#app.openTurn(row.turn) } }, `${row.turn}, as a timeline`)],
        ['Time', exact(commit.time)],
        ['Decided on', `${this.#describer.trigger(commit.trigger)}${commit.trigger?.sequence ? `, #${commit.trigger.sequence} of the log` : ''}`],
        ['Place', mono(event ? `${commit.commit}.${row.index}` : `${commit.commit}`)],
        ['Call', verdict?.step && mono(verdict.step)],
      ]),
      asked?.length ? [el('h4', null, verdict ? 'Its answer' : 'Answers of plugins'), verdicts(asked)] : null,
      jsonBlock(event ?? verdict, event ? 'Event' : 'Verdict', this.#app),
      event && el('details', { class: 'fold', on: { toggle: (e) => this.#whole(e.target, commit) } }, el('summary', null, icon('chevron'), 'The whole commit')));
  }

  #whole(details, commit) {
    if (details.open && !details.querySelector('pre')) details.append(jsonBlock(commit, 'Commit', this.#app));
  }

  // rove keeps exactly one row in the tab order; arrows move to the others. It is the
  // newest while the view follows, unless the focus is in the list already.
  #rove() {
    const heads = [...this.#list.querySelectorAll('.ev-head')];
    const there = heads.filter((h) => h.tabIndex === 0);
    if (there.length && (!this.#following || this.#list.contains(document.activeElement))) return;
    for (const h of there) h.tabIndex = -1;
    const last = heads[heads.length - 1];
    if (last) last.tabIndex = 0;
  }

  #focus(head) {
    if (!head) return;
    for (const h of this.#list.querySelectorAll('.ev-head[tabindex="0"]')) h.tabIndex = -1;
    head.tabIndex = 0;
    head.focus();
    head.scrollIntoView({ block: 'nearest' });
  }

  #keys(event) {
    const head = event.target.closest?.('.ev-head');
    if (!head || event.altKey || event.ctrlKey || event.metaKey) return;
    const heads = [...this.#list.querySelectorAll('.ev-head')];
    const at = heads.indexOf(head);
    const open = head.getAttribute('aria-expanded') === 'true';
    const move = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: heads.length - 1, PageDown: at + 10, PageUp: at - 10 }[event.key];
    if (move !== undefined) {
      event.preventDefault();
      this.#setFollowing(false);
      this.#focus(heads[Math.min(Math.max(move, 0), heads.length - 1)]);
    } else if ((event.key === 'ArrowRight' && !open) || (event.key === 'ArrowLeft' && open)) {
      event.preventDefault();
      head.click();
    } else if (event.key === 'Escape' && open) {
      event.preventDefault();
      event.stopPropagation();
      head.click();
    }
  }

  #setFollowing(on) {
    if (this.#following === on) return;
    this.#following = on;
    this.#follow.setAttribute('aria-pressed', String(!on));
    this.#follow.lastChild.textContent = on ? 'Pause' : 'Paused';
    if (on) {
      this.#paused = false;
      this.#from = Math.max(0, this.#shown.length - DRAWN);
    }
    this.#draw();
  }

  #showOlder() {
    this.#setFollowing(false);
    const scroller = this.#list.parentNode;
    const fromEnd = scroller.scrollHeight - scroller.scrollTop;
    this.#from = Math.max(0, this.#from - MORE);
    const last = this.#to;
    this.#to = Math.min(this.#to, this.#from + MOST_DRAWN);
    this.#draw();
    if (last === this.#to) scroller.scrollTop = scroller.scrollHeight - fromEnd;
  }

  #sayCounts() {
    for (const [name, chip] of this.#chips) chip.lastChild.textContent = String(this.#counts.get(name) ?? 0);
  }

  #head() {
    const lanes = LANES.map(([name, label, what]) => {
      const chip = el('button', {
        type: 'button', class: 'lane-chip', dataset: { lane: name }, 'aria-pressed': String(this.#lanes.has(name)), title: what,
        on: { click: () => this.#toggleLane(name, chip) },
      }, el('span', null, label), el('span', { class: 'num lane-count' }, '0'));
      this.#chips.set(name, chip);
      return chip;
    });
    let wait = 0;
    const search = el('input', {
      type: 'search', class: 'input', placeholder: 'Filter by text, tool, plugin…', autocomplete: 'off', spellcheck: 'false',
      on: {
        input: () => {
          clearTimeout(wait);
          wait = setTimeout(() => { this.#text = search.value.trim().toLowerCase(); this.#filter(); this.#app.announce(count(this.#shown.length, 'event')); }, 120);
        },
      },
    });
    this.#follow = el('button', {
      type: 'button', class: 'btn btn-small', 'aria-pressed': 'false', title: 'Pause, or follow new events', on: { click: () => { this.#paused = this.#following; this.#setFollowing(!this.#following); } },
    }, icon('pulse'), el('span', null, 'Pause'));
    return el('div', { class: 'ins-head' },
      el('div', { class: 'lane-chips', role: 'group', 'aria-label': 'Lanes that are shown' }, lanes),
      el('div', { class: 'row' }, field('Filter events by text', search), this.#follow));
  }

  #toggleLane(name, chip) {
    if (!this.#lanes.delete(name)) this.#lanes.add(name);
    chip.setAttribute('aria-pressed', String(this.#lanes.has(name)));
    remember('events.lanes', [...this.#lanes]);
    this.#filter();
  }

  #body() {
    this.#list = el('ol', { class: 'ev-list', 'aria-label': 'Events, the newest last', on: { keydown: (e) => this.#keys(e) } });
    this.#older = el('div', { class: 'ev-older', hidden: true },
      el('button', { type: 'button', class: 'btn btn-small', on: { click: () => this.#showOlder() } }), el('p', { class: 'faint tiny' }));
    this.#newer = el('button', { type: 'button', class: 'btn btn-small btn-primary ev-newer', hidden: true, on: { click: () => this.#setFollowing(true) } }, icon('down'), el('span', null));
    this.#empty = el('div', { class: 'empty' }, el('h3', null, 'Nothing has happened yet'), el('p', null));
    const scroller = el('div', {
      class: 'ev-scroll',
      on: {
        wheel: (e) => { if (e.deltaY < 0) this.#setFollowing(false); },
        touchmove: () => this.#setFollowing(false),
        scroll: () => {
          const rest = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
          if (!this.#following && !this.#paused && rest < 4 && this.#to === this.#shown.length && !this.#list.querySelector('.ev-detail')) this.#setFollowing(true);
        },
      },
    }, this.#older, this.#empty, this.#list);
    return el('div', { class: 'ev-body' }, scroller, this.#newer);
  }
}
