// The conversation: a session's notifications, shown as turns. Each is located by its
// place in the log, so that it does not matter whether it arrives live, from the past,
// or again.

import { el, fill, icon, iconButton } from './dom.js';
import { field } from './exact.js';
import { timeSeconds } from './fmt.js';
import { Turn } from './turn.js';
import { Files } from './call.js';
import { forgetPictures } from './files.js';
import { Composer } from './composer.js';
import { Models } from './models.js';
import { Senses } from './senses.js';
import { StateLine } from './state.js';
import { Transcript } from './transcript.js';
import { Outbox } from './outbox.js';
import { isAfter, place } from './rpc.js';
import { turns } from './pages.js';
import { welcome } from './welcome.js';
import { refusal } from './words.js';

const WINDOW = 40; // turns that are shown at first, and added by "Earlier turns"
const QUIET = 250; // ms after which the past counts as complete, if its last event has no notification

export class Conversation {
  #app;
  #title;
  #offline; // the bridge is unreachable
  #away; // the bridge is reachable, but the bus is not
  #locked;
  #problem;
  #transcript;
  #turns = new Map(); // by sequence
  #decisions = new Set(); // that are open
  #context;
  #composer;
  #models;
  #senses;
  #state;
  #outbox;
  #shown = WINDOW;
  #first = 0; // the sequence of the first turn that is shown; 0: all turns
  #opening = 0;
  #live = false; // the past is complete: notifications are new
  #until = null; // the place where the past ends
  #quiet = 0;
  #spoken = new Set(); // ids of the requests that were announced to screen readers
  #pending = null; // ids of the requests that were open when we attached
  #sessionTitle = '';
  #attachedTo = false; // the bridge has sent the session's state
  #cancelWanted = false; // Esc Esc was pressed before that

  constructor(root, app) {
    this.#app = app;
    this.#context = {
      app, files: new Files(),
      artifactURL: (ref) => artifactURL(app.session(), ref),
      cancel: (sequence) => this.cancel(sequence),
      retry: (text) => this.#send(text),
      decided: (d) => { this.#decisions.delete(d); this.#mark(); },
    };
    this.#models = new Models(app, (text) => this.#send(text));
    this.#senses = new Senses(app, {
      send: (text) => this.#send(text), fill: (text) => this.#composer.add(text), isEmpty: () => this.#composer.isEmpty, notice: (words) => this.#composer.notice(words),
    });
    this.#composer = new Composer({
      canSend: app.can('talk'), send: (text, mode) => this.#send(text, mode), beside: [this.#models.node, this.#senses.button], below: this.#senses.tools,
    });
    this.#outbox = new Outbox(app, (m) => this.#composer.notice(m));
    this.#state = new StateLine({ cancel: app.can('talk') ? () => this.cancel() : null, show: () => this.focusDecision() });
    this.#transcript = new Transcript({ earlier: () => this.#earlier() });
    this.#title = el('h1', { class: 'clip grow' }, 'Skandha');
    this.#offline = el('div', { class: 'banner', role: 'status', hidden: true });
    this.#away = el('div', { class: 'banner banner-away', role: 'status', hidden: true });
    this.#locked = el('div', { class: 'banner banner-danger', role: 'alert', hidden: true });
    this.#problem = el('div', { class: 'banner banner-danger', role: 'alert', hidden: true });
    const panel = iconButton('panel', 'Events, timeline, tools and plugins', () => app.panel.toggle(), { 'aria-expanded': String(app.panel.isOpen), 'aria-controls': 'panel' });
    app.panel.onChange = (open) => panel.setAttribute('aria-expanded', String(open));
    root.append(
      el('header', { class: 'topbar' }, iconButton('menu', 'Sessions', () => app.shell.toggleDrawer(), { class: 'icon-btn only-narrow' }), this.#title,
        app.faults.node, iconButton('plus', 'New session', () => app.newSession(), { class: 'icon-btn only-narrow' }), panel),
      this.#offline, this.#away, this.#problem, this.#transcript.node, this.#locked,
      el('div', { class: 'bottom' }, this.#senses.above, this.#state.node, this.#composer.node));
    this.#listen();
  }

  // open shows another session.
  async open() {
    this.#shown = WINDOW;
    this.#sessionTitle = '';
    this.#spoken.clear();
    this.#outbox.clear();
    await this.#load();
    if (!this.#app.shell.isNarrow) this.#composer.focus();
  }

  // title is the session's title; '' before its first turn.
  get title() { return this.#sessionTitle; }

  // listed is called when the list of sessions has been loaded.
  listed() { if (!this.#attachedTo) this.#mark(); }

  // focus puts the cursor into the input field.
  focus() { this.#composer.focus(); }

  // focusDecision focuses the oldest open request.
  focusDecision() {
    const [first] = this.#decisions;
    if (first) first.focus();
    else this.#app.announce('No decision is waiting.');
  }

  // escape handles the Esc key: the first press shows what the second will do.
  escape(again) {
    if (!this.#attachedTo && this.#app.can('talk')) {
      this.#cancelWanted = again;
      this.#state.hint(again ? 'Cancelling as soon as the session is loaded…' : 'Esc again cancels the turn');
      return;
    }
    if (!this.#state.busy || !this.#app.can('talk')) return;
    if (again) this.cancel();
    else this.#state.hint('Esc again cancels the turn');
  }

  // notice shows a text above the input field.
  notice(words) { this.#composer.notice(words); }

  // cancel cancels the turn of an input, or the running one.
  async cancel(sequence) {
    this.#state.hint('Cancelling…');
    try {
      await this.#app.rpc.call('cancelTurn', { ...(sequence && { sequence }) });
    } catch (e) {
      this.#state.hint('');
      this.#composer.notice(`Not cancelled. ${refusal(e)}`);
    }
  }

  // showTurn scrolls to a turn, e.g. "t42".
  showTurn(name) {
    const turn = this.#turns.get(Number(name.slice(1)));
    if (!turn) return;
    if (this.#app.shell.isOverlay) this.#app.panel.hide();
    turn.node.scrollIntoView({ block: 'start' });
    turn.node.classList.add('pointed');
    setTimeout(() => turn.node.classList.remove('pointed'), 1600);
  }

  // use puts a text into the input field, as the examples do.
  use(text) { this.#composer.fill(text); }

  // #load loads the session's log, as far back as is shown.
  async #load() {
    const opening = ++this.#opening;
    this.#forget();
    let after = '0';
    try {
      const session = this.#app.session();
      await this.#open();
      const { rows } = await turns(this.#app.rpc, session, this.#shown + 1);
      if (opening !== this.#opening) return;
      const first = rows.length > this.#shown && rows[this.#shown - 1]; // the latest comes first
      if (first) after = first.after;
      this.#first = first ? first.sequence : 0;
      this.#transcript.hasEarlier(!!first);
    } catch (e) {
      if (opening !== this.#opening) return;
      if (e.code === 'unavailable' || e.code === 'timeout') return this.#again(opening);
      if (e.code !== 'not_found' && e.code !== 'unknown_method') this.#fail(e); // a new session has no past
    }
    try {
      await this.#app.attach(after);
    } catch (e) {
      if (opening === this.#opening) this.#fail(e);
    }
    return undefined;
  }

  // #open waits for the connection.
  #open() {
    if (this.#app.connection.isOpen) return Promise.resolve();
    return new Promise((resolve) => {
      const off = this.#app.on('connection', ({ state }) => {
        if (state !== 'open') return;
        off();
        resolve();
      });
    });
  }

  #again(opening) {
    setTimeout(() => opening === this.#opening && this.#load(), 500);
  }

  #forget() {
    this.#first = 0;
    this.#turns.clear();
    this.#decisions.clear();
    this.#context.files.forget();
    forgetPictures();
    this.#transcript.clear();
    this.#state.set('');
    this.#attachedTo = false;
    this.#cancelWanted = false;
    this.#transcript.showEmpty(skeleton());
    this.#locked.hidden = true;
    this.#problem.hidden = true;
    this.#live = false;
    this.#pending = null;
    this.#mark();
  }

  async #earlier() {
    this.#shown += WINDOW * 2;
    this.#transcript.keep();
    await this.#load();
    this.#outbox.each((turn) => this.#transcript.append(turn.node));
  }

  #fail(e) {
    fill(this.#problem, icon('warn'), el('span', { class: 'grow' }, refusal(e)), el('button', { class: 'btn btn-small', type: 'button', on: { click: () => this.#load() } }, 'Try again'));
    this.#problem.hidden = false;
  }

  #send(text, mode) {
    if (text === '/quit') {
      this.#composer.notice('To leave, close this page; the session stays open. To sign out, use the button below the sessions.');
      return;
    }
    const turn = new Turn(this.#context, 0);
    turn.say({ text, writer: '', time: new Date().toISOString() });
    this.#transcript.append(turn.node, true);
    this.#outbox.send({ text, mode, turn, session: this.#app.session(), placed: (sequence) => this.#adopt(turn, sequence) });
  }

  // #adopt gives a turn that was typed here its place, once the bus has acknowledged it.
  #adopt(turn, sequence) {
    const known = this.#turns.get(sequence);
    if (known === turn) return;
    if (known) { // its notification arrived before the acknowledgement
      turn.node.remove();
      return;
    }
    turn.place(sequence);
    this.#turns.set(sequence, turn);
    this.#transcript.place(turn.node, sequence);
  }

  // #turn returns the view for a notification: that of its turn, or of its cause.
  #turn(p, sequence = p.turn ? Number(p.turn.slice(1)) : Number(p.cause || 0)) {
    if (!(sequence > 0) || sequence < this.#first) return null;
    let turn = this.#turns.get(sequence);
    if (!turn) {
      turn = this.#outbox.take(p.input_id ?? p.recorded?.input_id ?? p.failed?.input_id, sequence) ?? new Turn(this.#context, sequence);
      turn.place(sequence);
      this.#turns.set(sequence, turn);
      this.#transcript.place(turn.node, sequence);
    }
    if (p.turn && !turn.running && !turn.over) turn.began(p.turn);
    return turn;
  }

  // #current returns the running turn, or else the latest one that is not queued. It shows
  // the session's notices.
  #current() {
    const turns = [...this.#turns.values()].filter((t) => !t.queued).sort((a, b) => b.sequence - a.sequence);
    return turns.find((t) => t.running) ?? turns[0];
  }

  #listen() {
    const { on } = this.#app;
    const handle = (method, fn) => on(method, (p, id, raw) => {
      const at = place(id);
      if (at && this.#until && isAfter(at, this.#until)) this.#settle();
      this.#transcript.change(() => fn(p, raw, id));
      if (!this.#live && at) this.#received(at);
    });
    handle('onAttached', (p) => this.#attached(p));
    handle('onInput', (p) => { this.#turn(p, p.sequence)?.perceived(p); this.#entitle(p); this.#queue(); });
    handle('onAgentStateChange', (p) => this.#changed(p.state, p.time));
    handle('onPlanConsidered', (p) => this.#turn(p)?.considered(p));
    handle('onPlanRequested', (p) => this.#turn(p)?.asked(p));
    handle('onDelta', (p) => this.#turn(p)?.delta(p));
    handle('onPlanCompleted', (p, raw) => this.#turn(p)?.planned(p, (i) => field(raw, ['params', 'steps', i, 'args'])));
    handle('onNewMessage', (p) => this.#said(p));
    handle('onToolCallRequest', (p, raw) => this.#asked(p, field(raw, ['params', 'args'])));
    handle('onPartialApproval', (p) => { this.#turn(p)?.approved(p); if (this.#live) this.#app.announce(`${p.person} has approved; ${p.left === 1 ? 'one more person' : `${p.left} more people`} must.`); });
    handle('onConfirmationResolved', (p) => { this.#turn(p)?.resolved(p); this.#announceOutcome(p); });
    handle('onAudit', (p) => this.#turn(p)?.audited(p));
    handle('onToolCall', (p, raw) => { this.#turn(p)?.started(p, field(raw, ['params', 'args'])); this.#state.tool(p.toolName); });
    handle('onToolOutput', (p) => this.#turn(p)?.printed(p));
    handle('onToolResult', (p) => this.#turn(p)?.ended(p));
    handle('onTurnEnd', (p) => { this.#ended(p); if (p.recorded?.provider && this.#live) this.#models.load(); });
    handle('onSessionLocked', (p) => this.#lock(p.reason, p.until, p.deleted));
    handle('onSessionReset', (p) => { this.#locked.hidden = true; this.#transcript.divide(`The conversation was reset by ${p.by}. The model no longer knows what is above.`); });
    on('onBus', ({ connected, fault }) => this.#bus(connected, fault));
    on('onDropped', (d) => {
      if (d.code === 'invalid_argument') this.#load(); // the log was replaced: load it again
      else if (d.code !== 'too_slow' && d.code !== 'unavailable') this.#composer.notice(d.message ?? ''); // the banner shows those two
    });
    on('attachFailed', (e) => this.#fail(e));
    on('connection', ({ state, detail }) => this.#connected(state, detail));
  }

  #attached(p) {
    this.#sessionTitle = p.title ?? '';
    this.#attachedTo = true;
    this.#changed(p.state, (p.pending ?? []).map((r) => r.time ?? '').sort()[0]);
    if (this.#cancelWanted && this.#state.busy) this.cancel();
    this.#cancelWanted = false;
    this.#pending = new Set((p.pending ?? []).map((r) => r.confirmationId));
    this.#problem.hidden = true;
    this.#live = false;
    this.#until = place(p.until);
    this.#models.load();
    this.#received(place(p.after));
  }

  // #received is called when the past has arrived up to a place.
  #received(at) {
    if (!this.#until || (at && !isAfter(this.#until, at))) return this.#settle();
    clearTimeout(this.#quiet);
    this.#quiet = setTimeout(() => this.#settle(), QUIET);
    return undefined;
  }

  // #settle ends the past: later notifications are new.
  #settle() {
    clearTimeout(this.#quiet);
    if (this.#live) return;
    this.#live = true;
    this.#transcript.change(() => {
      // A request that was not answered and is not open any more has lost its turn.
      for (const d of [...this.#decisions]) if (this.#pending && !this.#pending.has(d.id)) d.withdrawn();
      if (!this.#turns.size && !this.#outbox.size) this.#transcript.showEmpty(welcome(this.#app));
      else this.#transcript.showEmpty(null);
    });
    this.#transcript.settled();
    for (const d of this.#decisions) this.#speak(d);
    this.#mark();
  }

  // #entitle sets the title to the input of the first turn, as core does, however that turn
  // ends.
  #entitle({ turn, text }) {
    if (this.#sessionTitle || !turn || !text) return;
    this.#sessionTitle = text.replace(/\s+/g, ' ').slice(0, 80);
    this.#mark();
  }

  #changed(state, time) {
    this.#state.set(state, time);
    if (state === 'waiting_for_input') for (const turn of this.#turns.values()) turn.rest();
    if (state && state !== 'locked') this.#locked.hidden = true;
    else if (state === 'locked' && this.#locked.hidden) this.#lock('');
    this.#mark();
  }

  #said(m) {
    const known = m.turn || this.#turns.has(Number(m.cause));
    const turn = !known && m.format === 'text' ? this.#current() : this.#turn(m);
    if (!turn) return;
    if (!m.turn && (turn.running || turn.over || m.format === 'text' || !known)) turn.notice(m);
    else turn.message(m);
    if (this.#live) this.#app.announce(`Skandha: ${plain(m)}`);
  }

  #asked(p, argsText) {
    const turn = this.#turn(p);
    if (!turn) return;
    const decision = turn.request(p, argsText || JSON.stringify(p.args), { live: this.#live });
    if (!decision.isOpen) return;
    this.#pending?.add(decision.id); // it is new, so it is open
    this.#decisions.add(decision);
    this.#mark();
    if (this.#live) this.#speak(decision);
  }

  // #speak announces an open request to screen readers, once.
  #speak(decision) {
    if (!decision.isOpen || this.#spoken.has(decision.id)) return;
    this.#spoken.add(decision.id);
    this.#app.announce(`${decision.spoken} Alt A goes to the request.`, true);
  }

  #announceOutcome({ outcome, by }) {
    if (this.#live) this.#app.announce(outcome === 'expired' ? 'The request expired.' : `The request was ${outcome} by ${by}.`);
  }

  #ended(p) {
    const end = p.recorded ?? p.failed;
    const turn = this.#turn(p, end?.sequence);
    if (!turn) return;
    if (p.recorded?.joined) {
      turn.joined();
      this.#queue();
      return;
    }
    turn.finish(p);
    this.#queue();
    this.#state.hint('');
    if (this.#live && p.recorded?.answer) this.#senses.answered(p.recorded.answer);
    if (this.#live && p.failed) this.#app.announce(`The turn ended without an answer: ${p.failed.reason || p.failed.code}`);
    this.#mark();
  }

  #lock(reason, until, deleted) {
    if (deleted) {
      fill(this.#locked, icon('lock'), el('span', { class: 'grow' }, reason, '.'),
        this.#app.can('talk') && el('button', { class: 'btn btn-small', type: 'button', on: { click: () => this.#send('/undelete') } }, 'Undelete'));
      this.#locked.hidden = false;
      return;
    }
    const opens = until
      ? [`It accepts messages again from ${timeSeconds(until)} on. `, el('code', null, '/reset'), ' forgets the conversation and unlocks it at once.']
      : [el('code', null, '/reset'), ' forgets the conversation and unlocks it.'];
    fill(this.#locked, icon('lock'), el('span', { class: 'grow' }, 'This session is locked', reason && `: ${reason}`, '. ', ...opens),
      this.#app.can('talk') && el('button', { class: 'btn btn-small', type: 'button', on: { click: () => this.#send('/reset') } }, 'Reset'));
    this.#locked.hidden = false;
  }

  #queue() { this.#state.queue([...this.#turns.values()].filter((t) => t.queued).length); }

  // #mark updates the titles and the state line.
  #mark() {
    const { session } = this.#app.session();
    // Until the bridge has sent it, the list may have it.
    const known = this.#sessionTitle || (this.#attachedTo ? '' : this.#app.sessions?.titleOf(this.#app.session()) ?? '');
    const title = known || (this.#attachedTo ? 'New session' : session);
    this.#title.textContent = title;
    this.#title.title = session;
    const open = [...this.#decisions].filter((d) => d.isOpen).length;
    this.#state.decisions(open);
    document.title = `${open ? '(!) ' : ''}${known || session || 'Session'} · Skandha`;
  }

  // #bus shows that the bridge has lost the bus, or why the bus cannot store.
  #bus(connected, fault = '') {
    const text = connected ? fault && `${fault[0].toUpperCase()}${fault.slice(1)}. What you send meanwhile is kept.`
      : 'The bridge has lost its connection to the bus and is reconnecting. Nothing is lost: you will see what happened meanwhile.';
    this.#away.hidden = !text;
    this.#away.classList.toggle('banner-danger', Boolean(connected && fault));
    fill(this.#away, text ? [icon('warn'), el('span', { class: 'grow' }, text)] : '');
    this.#state.connection(connected ? 'open' : 'away');
    if (connected && !fault) this.#outbox.flush();
  }

  #connected(state, pause) {
    if (state !== 'open') this.#bus(true); // the bridge sends it again if it still applies
    const down = state === 'waiting' || (state === 'connecting' && !this.#offline.hidden);
    this.#offline.hidden = !down;
    if (state === 'waiting') {
      fill(this.#offline, icon('warn'), el('span', { class: 'grow' }, 'Connection lost; reconnecting', pause > 2500 ? ` in ${Math.round(pause / 1000)} s.` : '…', ' What you send meanwhile is kept.'),
        el('button', { class: 'btn btn-small', type: 'button', on: { click: () => this.#app.connection.retryNow() } }, 'Try now'));
      this.#pending = null;
    }
    if (state === 'open') {
      clearTimeout(this.#quiet);
      this.#live = false;
      this.#outbox.flush();
    }
    for (const d of this.#decisions) d.connected();
    this.#state.connection(state);
  }
}

// skeleton is the placeholder for a session that is being loaded.
function skeleton() {
  return el('div', { class: 'skeleton', role: 'status' }, el('span', { class: 'visually-hidden' }, 'Loading the session…'),
    [0, 1, 2, 3].map(() => el('div', { class: 'skeleton-line', 'aria-hidden': 'true' })));
}

// artifactURL returns the address of an artifact at the bridge. A name that a browser would
// normalise goes into the query.
function artifactURL({ agent, session }, ref) {
  const own = `${agent}/${session}/`;
  const name = ref.startsWith(own) ? ref.slice(own.length) : ref;
  const base = `/v1/agents/${agent}/sessions/${session}/artifacts/`;
  const parts = name.split('/');
  if (parts.some((part) => part === '' || part === '.' || part === '..')) return `${base}?name=${encodeURIComponent(name)}`;
  return base + parts.map(encodeURIComponent).join('/');
}

// plain returns a message as spoken text.
function plain(m) {
  const text = m.content.replace(/```[\s\S]*?```/g, ' (code) ').replace(/[*_`#>]+/g, '').replace(/\s+/g, ' ').trim();
  return text.length > 600 ? `${text.slice(0, 600)}… and more` : text;
}
