// The rail: all sessions, newest first, with their state and whether they have changed
// since they were last viewed.

import { canUse, register } from './passkey.js';
import { el, fill, icon, iconButton } from './dom.js';
import { brand } from './shell.js';
import { sessions } from './pages.js';
import { recall, remember } from './store.js';
import { STATES, busy, refusal } from './words.js';
import * as fmt from './fmt.js';

const EVERY = 5_000; // ms between two refreshes
const PAGE = 50;
const MOST_SEEN = 500; // sessions whose last view is remembered

async function newPasskey(app) {
  try {
    await register();
    app.announce('The passkey is registered.', true);
    app.conversation.notice('The passkey is registered. Approvals that need one ask for it.');
  } catch (e) {
    app.announce(refusal(e), true);
    app.conversation.notice(refusal(e));
  }
}

export class Sessions {
  #app;
  #list;
  #note;
  #search;
  #newButton;
  #rows = []; // as listSessions returns them
  #limit = PAGE;
  #more = '';
  #timer = 0;
  #state = null; // of the session that is shown: notifications arrive before the list
  #due = 0; // when the timer runs out
  #seen = recall('seen', {});
  #since = recall('seen.since', 0);

  constructor(root, app) {
    this.#app = app;
    if (!this.#since) { // sessions from before the first visit are not unread
      this.#since = Date.now();
      remember('seen.since', this.#since);
    }
    this.#search = el('input', { class: 'input', type: 'search', placeholder: 'Find a session', 'aria-label': 'Find a session', spellcheck: 'false', on: { input: () => this.#draw(), keydown: (e) => this.#searchKeys(e) } });
    this.#list = el('ul', { class: 'sessions' });
    this.#note = el('p', { class: 'sessions-note muted small', hidden: true });
    this.#newButton = el('button', { class: 'btn new-session', type: 'button', on: { click: () => app.newSession() } }, icon('plus'), 'New session');
    const signOut = iconButton('out', 'Sign out', () => app.logout());
    root.append(
      el('header', { class: 'rail-head' }, el('a', { class: 'brand-link', href: '#', 'aria-label': 'Skandha, new session', on: { click: (e) => { e.preventDefault(); app.newSession(); } } }, brand()),
        iconButton('close', 'Close the sessions', () => app.shell.dismiss(), { class: 'icon-btn only-narrow' })),
      el('div', { class: 'rail-tools' }, app.can('talk') && this.#newButton, this.#search),
      el('div', { class: 'rail-list' }, this.#list, this.#note),
      el('footer', { class: 'rail-foot' },
        el('span', { class: 'clip small muted grow', title: `Signed in as ${app.principal.writer}: may ${app.rights.join(', ') || 'nothing'}` }, app.principal.name),
        canUse() && iconButton('lock', 'Register a passkey', () => newPasskey(app)),
        iconButton('keyboard', 'Keyboard shortcuts', () => app.help()), themeButton(), signOut));

    app.on('connection', ({ state }) => state === 'open' && this.refresh());
    for (const m of ['onTurnEnd', 'onToolCallRequest', 'onPartialApproval', 'onConfirmationResolved', 'onSessionReset']) app.on(m, () => this.#soon(400));
    for (const m of ['onAttached', 'onAgentStateChange']) app.on(m, (p) => { this.#state = p.state; this.#draw(); });
    app.on('onTurnEnd', () => this.#draw());
    app.onSession(() => { this.#state = null; this.#draw(); this.#soon(400); });
    document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && this.refresh());
  }

  // refresh reloads the list now.
  async refresh() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    try {
      const { rows, next } = await sessions(this.#app.rpc, this.#limit);
      this.#rows = rows;
      this.#more = next;
      this.#note.hidden = true;
      this.#draw();
      this.#app.conversation?.listed();
    } catch (e) {
      if (e.code !== 'unavailable' && e.code !== 'timeout') { // the banner shows those
        this.#note.textContent = `Could not list the sessions. ${refusal(e)}`;
        this.#note.hidden = false;
      }
    }
    this.#soon(EVERY);
  }

  // titleOf returns a session's title from the list, or ''.
  titleOf({ agent, session }) { return this.#rows.find((r) => r.agent === agent && r.session === session)?.title ?? ''; }

  // step opens the previous or next session in the list.
  step(by) {
    const { agent, session } = this.#app.session();
    const rows = below(this.#found()).map(({ r }) => r);
    const at = rows.findIndex((r) => r.agent === agent && r.session === session);
    const next = rows[at < 0 ? 0 : at + by];
    if (next) this.#app.openSession(next);
  }

  // focusSearch puts the cursor into the search field.
  focusSearch() {
    if (this.#app.shell.isNarrow && !this.#app.shell.rail.classList.contains('open')) this.#app.shell.toggleDrawer();
    this.#search.focus();
    this.#search.select();
  }

  // #soon refreshes after ms at the latest; frequent calls do not postpone it.
  #soon(ms) {
    const due = performance.now() + ms;
    if (this.#timer && this.#due <= due) return;
    clearTimeout(this.#timer);
    this.#due = due;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      if (document.visibilityState === 'visible' && this.#app.connection.isOpen) this.refresh();
      else this.#soon(EVERY);
    }, ms);
  }

  #found() {
    const words = this.#search.value.toLowerCase().split(/\s+/).filter(Boolean);
    return this.#rows.filter((r) => {
      const text = `${r.title} ${r.session} ${r.agent}`.toLowerCase();
      return words.every((w) => text.includes(w));
    });
  }

  #draw() {
    const here = this.#app.session();
    const found = this.#found();
    const listed = this.#rows.some((r) => r.agent === here.agent && r.session === here.session);
    const agents = new Set(this.#rows.map((r) => r.agent));
    const focused = document.activeElement?.closest?.('.session')?.getAttribute('href');
    const now = (r) => (r.agent !== here.agent || r.session !== here.session ? r : { ...r, title: r.title || (this.#app.conversation?.title ?? ''), state: this.#state ?? r.state });
    const rows = below(found).map(({ r, depth }) => this.#row(now(r), here, agents.size > 1, depth));
    if (!listed && here.session && !this.#search.value) {
      rows.unshift(this.#row(now({ ...here, title: '', state: '', turns: 0, updated: '' }), here, agents.size > 1));
    }
    fill(this.#list, rows, this.#more && !this.#search.value && el('li', null, el('button', { class: 'btn btn-quiet btn-small sessions-more', type: 'button', on: { click: () => { this.#limit += PAGE; this.refresh(); } } }, 'Show more')));
    if (focused) [...this.#list.querySelectorAll('.session')].find((a) => a.getAttribute('href') === focused)?.focus({ preventScroll: true });
    if (this.#search.value && !found.length) fill(this.#list, el('li', { class: 'sessions-note muted small' }, 'No matching session.'));
  }

  #row(r, here, withAgent, depth = 0) {
    const key = `${r.agent}/${r.session}`;
    const current = r.agent === here.agent && r.session === here.session;
    const updated = Date.parse(r.updated) || 0;
    if (current && updated && document.visibilityState === 'visible') this.#look(key, updated);
    const unread = !current && updated > Math.max(this.#seen[key] ?? 0, this.#since);
    const asks = r.state === 'awaiting_confirmation';
    const doing = asks || ['locked', 'paused'].includes(r.state) || busy(r.state) ? STATES[r.state] ?? r.state : '';
    return el('li', depth ? { class: 'session-below', style: { '--depth': String(Math.min(depth, 4)) } } : null, el('a', { class: 'session', href: `#/${r.agent}/${r.session}`, 'aria-current': current ? 'page' : null, dataset: { unread: String(unread) } },
      el('span', { class: 'session-title clip' }, depth > 0 && el('span', { class: 'visually-hidden' }, `For ${r.above}: `), r.title || (r.turns ? r.session : 'New session')),
      el('span', { class: 'session-meta tiny' },
        doing ? el('span', { class: `session-state ${asks || r.state === 'paused' ? 'asks' : r.state === 'locked' ? 'locked' : 'busy'}` }, el('span', { class: 'dot', 'aria-hidden': 'true' }), doing)
          : el('span', { class: 'clip' }, withAgent ? key : r.session),
        updated > 0 && el('time', { class: 'num session-ago', datetime: r.updated, title: fmt.exact(r.updated) }, fmt.ago(r.updated))),
      unread && el('span', { class: 'unread' }, el('span', { class: 'visually-hidden' }, ', unread'))));
  }

  #look(key, updated) {
    if ((this.#seen[key] ?? 0) >= updated) return;
    this.#seen[key] = updated;
    const keys = Object.keys(this.#seen);
    if (keys.length > MOST_SEEN) {
      keys.sort((a, b) => this.#seen[a] - this.#seen[b]);
      for (const k of keys.slice(0, keys.length - MOST_SEEN)) delete this.#seen[k];
    }
    remember('seen', this.#seen);
  }

  #searchKeys(event) {
    if (event.key === 'Enter') {
      const first = this.#found()[0];
      if (first) this.#app.openSession(first);
    } else if (event.key === 'Escape' && this.#search.value) {
      event.stopPropagation();
      this.#search.value = '';
      this.#draw();
    }
  }
}

// below orders sessions so that each that works for another one follows that one, if it is listed.
function below(all) {
  const known = new Set(all.map((r) => `${r.agent}/${r.session}`));
  const under = new Map();
  for (const r of all) {
    const above = known.has(r.above) ? r.above : '';
    under.set(above, [...(under.get(above) ?? []), r]);
  }
  const out = [];
  const add = (above, depth) => {
    for (const r of under.get(above) ?? []) {
      out.push({ r, depth });
      add(`${r.agent}/${r.session}`, depth + 1);
    }
  };
  add('', 0);
  return out;
}

function themeButton() {
  const theme = window.skandhaTheme;
  const button = iconButton('moon', '', () => { theme.set(theme.dark() ? 'light' : 'dark'); draw(); });
  const draw = () => {
    const label = theme.dark() ? 'Switch to light colours' : 'Switch to dark colours';
    fill(button, icon(theme.dark() ? 'sun' : 'moon'));
    button.setAttribute('aria-label', label);
    button.title = label;
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  draw();
  return button;
}
