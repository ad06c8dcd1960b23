// One turn of the conversation: an input and everything that belongs to it, by its
// place in the log. A slash command is a short turn.

import { el, fill, icon } from './dom.js';
import { renderHTML } from './html.js';
import { highlight, languageOf } from './code.js';
import { Call } from './call.js';
import { failure } from './words.js';
import { explains } from './why.js';
import * as fmt from './fmt.js';

// Turn is the view of one input. context is shared by the conversation.
export class Turn {
  #context;
  #said;
  #text;
  #who;
  #chips;
  #answer;
  #foot;
  #segments = new Map(); // by plan
  #last = null; // the segment that was added last
  #completed = null; // the segment that was committed last
  #calls = new Map();
  #considered = []; // why tools were offered or called
  #name = '';
  #thinking = null;
  #queued = false;
  #about = {}; // what is known of the input

  // sequence is the input's place in the log; 0 if it is not acknowledged yet.
  constructor(context, sequence) {
    this.#context = context;
    this.sequence = sequence;
    this.over = false;
    this.#who = el('span', { class: 'said-who' });
    this.#chips = el('span', { class: 'said-chips' });
    this.#text = el('div', { class: 'said-text', dir: 'auto' });
    this.#said = el('div', { class: 'said', hidden: true }, el('div', { class: 'said-head small' }, this.#who, this.#chips), this.#text);
    this.#answer = el('div', { class: 'answer' });
    this.#foot = el('footer', { class: 'turn-foot tiny', hidden: true });
    this.node = el('article', { class: 'turn', dataset: { sequence } }, this.#said, this.#answer, this.#foot);
  }

  get name() { return this.#name || (this.sequence ? `t${this.sequence}` : ''); }
  get calls() { return this.#calls; }
  get running() { return Boolean(this.#name) && !this.over; }

  // place sets its place in the log, once known.
  place(sequence) {
    this.sequence = sequence;
    this.node.dataset.sequence = sequence;
  }

  // say shows the input and its sender.
  say(about) {
    this.#about = { ...this.#about, ...Object.fromEntries(Object.entries(about).filter(([, v]) => v)) };
    const { text, writer, source, time } = this.#about;
    const { annotations } = about;
    const me = this.#context.app.principal.writer;
    const who = !writer || writer === me ? 'You' : writer;
    fill(this.#who, el('span', { class: who === 'You' ? '' : 'said-other' }, who), source && source !== 'web' && el('span', { class: 'muted' }, ` in ${source}`),
      time && el('time', { class: 'faint num', datetime: time, title: fmt.exact(time) }, ` ${fmt.time(time)}`));
    if (text) {
      this.#text.textContent = text;
      this.#said.hidden = false;
    }
    for (const a of annotations ?? []) this.#answer.append(el('p', { class: 'aside small muted' }, icon('info'), el('span', null, 'A hook added: ', a)));
    this.node.setAttribute('aria-label', text ? `${who}: ${text.slice(0, 80)}` : who);
  }

  // hasText reports whether the input's text is known.
  get hasText() { return !this.#said.hidden; }

  // perceived shows the input as core has perceived it.
  perceived(p) {
    if (p.disposition === 'joined') return this.joined();
    const queued = p.disposition === 'queued';
    if (p.text || !this.hasText) this.say(p);
    this.node.classList.remove('sending');
    this.#queued = queued;
    if (p.turn) this.began(p.turn);
    fill(this.#chips, queued && [el('span', { class: 'chip' }, icon('clock'), p.steer ? 'waiting for the next step' : 'waiting for its turn'), this.#context.app.can('talk') && el('button', { class: 'link-btn', type: 'button', on: { click: () => this.#context.cancel(this.sequence) } }, 'Take back')]);
  }

  // joined shows that the input is part of the running turn now, whose answer is for it, too.
  joined() {
    this.over = true;
    this.#queued = false;
    fill(this.#chips, el('span', { class: 'chip' }, icon('check'), 'taken into the turn above'));
  }

  get queued() { return this.#queued && !this.over; }

  // began shows that its turn is running.
  began(name) {
    this.#name = name;
    this.node.dataset.turn = name;
  }

  // sending and unsent show the progress of an input that was typed here.
  sending(words) {
    this.node.classList.add('sending');
    fill(this.#chips, el('span', { class: 'chip' }, el('span', { class: 'spinner', 'aria-hidden': 'true' }), words));
  }

  sent() {
    this.node.classList.remove('sending');
    fill(this.#chips);
  }

  unsent(words, retry) {
    this.node.classList.remove('sending');
    this.node.classList.add('unsent');
    fill(this.#chips, el('span', { class: 'chip chip-danger', role: 'alert' }, words), el('button', { class: 'link-btn', type: 'button', on: { click: () => { this.node.classList.remove('unsent'); retry(); } } }, 'Send again'));
  }

  // asked shows that the model is asked; a later attempt starts the text over.
  asked({ plan, attempt, attempts, time }) {
    const s = this.#segment(plan, time);
    if (s.attempt && s.attempt !== attempt) s.restart();
    s.attempt = attempt;
    if (attempts > 1) this.#thinks(`Trying again, attempt ${attempts}`);
    else this.#thinks('Thinking');
  }

  delta(d) {
    const s = this.#segment(d.plan);
    if (s.settled) return; // the commit has the whole text
    if (s.attempt && d.attempt && s.attempt !== d.attempt) s.restart();
    s.attempt = d.attempt;
    if (d.text || d.reasoning || d.blocks?.length) this.#thinks('');
    s.delta(d);
  }

  planned(p, argsText) {
    this.#thinks('');
    if (p.purpose) return; // an answer to core, which goes on
    const s = this.#segment(p.plan);
    if (p.error) {
      s.restart();
      s.failed(p.error);
      return;
    }
    s.completed(p);
    this.#completed = s;
    (p.steps ?? []).forEach((step, i) => {
      const call = this.#call(step.call, step.tool, argsText(i), s, step.parent);
      const reason = this.#considered.findLast((c) => explains(c, step.tool));
      if (reason) call.explain(reason);
    });
  }

  // considered keeps why the next plan offers or calls its tools.
  considered(p) { this.#considered.push(p); }

  message(m) {
    this.#thinks('');
    // The model's text arrives again as a message, as hooks have left it, and replaces the
    // first one. The text of a later answer may have begun by then.
    const s = this.#completed;
    const into = s && !s.settledByMessage && (s.hasText || !s.hasCalls) ? s : this.#segment(`message-${this.#segments.size}`);
    into.message(m);
  }

  request(r, argsText, options) {
    const call = this.#call(r.confirmationId, r.toolName, argsText);
    return call.asked(r, argsText, options);
  }

  approved(r) { this.#calls.get(r.confirmationId)?.decision?.approved(r); }

  resolved(r) { this.#calls.get(r.confirmationId)?.decision?.resolved(r); }
  audited(a) { if (a.call) (this.#calls.get(a.call) ?? (a.action === 'tool.call' && this.#call(a.call, a.resource || 'tool')))?.audited?.(a); }
  started(c, argsText) { this.#call(c.call, c.toolName, argsText).started(c, argsText); }
  printed(o) { this.#calls.get(o.call)?.printed(o); }
  ended(r) { this.#call(r.call, r.toolName).ended(r); }

  // finish shows the terminal event.
  finish({ recorded, failed, time }) {
    this.over = true;
    this.#thinks('');
    fill(this.#chips);
    this.node.classList.remove('sending');
    for (const s of this.#segments.values()) s.stop();
    for (const c of this.#calls.values()) if (!c.over) c.abandoned();
    const end = recorded ?? failed;
    if (recorded?.command && !this.hasText) this.say({ text: `/${recorded.command}`, time });
    if (recorded?.input && !this.hasText) this.say({ text: recorded.input });
    if (failed) {
      let [words, bad] = failure(failed.code);
      let reason = failed.reason;
      if (failed.code === 'cancelled' && reason) { // the reason names who cancelled, which is enough
        [words, reason] = [`${reason[0].toUpperCase()}${reason.slice(1)}.`.replace(` by ${this.#context.app.principal.writer}`, ' by you'), ''];
      }
      const { text } = this.#about;
      const again = bad && text && !text.startsWith('/') && this.#context.app.can('talk') && el('button', { class: 'btn btn-small turn-retry', type: 'button', title: 'Send the same text again', on: { click: () => { again.disabled = true; this.#context.retry(text); } } }, 'Retry');
      this.node.dataset.failed = failed.code;
      for (const s of this.#segments.values()) s.recovered(); // the reason is shown instead
      this.#answer.append(el('div', { class: bad ? 'note note-danger turn-failed' : 'note turn-failed' }, icon(bad ? 'warn' : 'info'),
        el('div', null, el('p', null, words), reason && el('p', { class: 'small' }, reason), again)));
    }
    for (const n of recorded?.notes ?? []) this.#answer.append(el('p', { class: 'aside small muted' }, icon('info'), el('span', null, n)));
    if (!recorded?.command && this.#name) this.#sum(end);
  }

  // notice shows a text beside the answer, from a hook or from core.
  notice(m) {
    const node = el('div', { class: 'aside small muted' }, icon('info'), el('div', { class: 'prose' }));
    this.#answer.append(node);
    write(node.lastChild, m);
  }

  // rest removes the typing indicators: nothing runs any more.
  rest() { for (const s of this.#segments.values()) s.stop(); }

  connected() { for (const c of this.#calls.values()) c.decision?.connected(); }

  #sum(end) {
    const usage = end.usage ?? {};
    const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
    const parts = [
      end.duration_ms > 0 && fmt.duration(end.duration_ms), end.actions?.length && fmt.count(end.actions.length, 'call'),
      end.rounds > 1 && fmt.count(end.rounds, 'round'), tokens > 0 && fmt.count(tokens.toLocaleString(), 'token'),
    ].filter(Boolean);
    const name = this.#name;
    fill(this.#foot, el('span', { class: 'num' }, parts.join(' · ')), el('button', { class: 'link-btn', type: 'button', title: 'Show what took how long in this turn', on: { click: () => this.#context.app.openTurn(name) } }, 'Timeline'));
    this.#foot.hidden = false;
  }

  #segment(plan) {
    let s = this.#segments.get(plan);
    if (!s) {
      s = new Segment(plan);
      this.#segments.set(plan, s);
      this.#answer.append(s.node);
      this.#last = s;
    }
    return s;
  }

  #call(id, tool, argsText = '', segment = this.#last ?? this.#segment('calls'), parent = '') {
    let c = this.#calls.get(id);
    if (!c) {
      c = new Call(this.#context, { call: id, tool, argsText, parent });
      this.#calls.set(id, c);
      segment.addCall(c);
    }
    return c;
  }

  #thinks(words) {
    this.#thinking?.remove();
    this.#thinking = null;
    if (!words) return;
    this.#thinking = el('p', { class: 'thinking small muted' }, el('span', { class: 'spinner', 'aria-hidden': 'true' }), words);
    this.#answer.append(this.#thinking);
  }
}

// Segment is one answer of the model: its reasoning, its text and its calls.
class Segment {
  #reasoning;
  #thoughts;
  #prose;
  #calls;
  #blocks = [];
  #plain = '';
  #failure = null;

  constructor(plan) {
    this.attempt = '';
    this.settled = false; // by the commit: later deltas are ignored
    this.settledByMessage = false;
    this.#thoughts = el('div', { class: 'thoughts small', dir: 'auto' });
    this.#reasoning = el('details', { class: 'fold reasoning', hidden: true }, el('summary', { class: 'small' }, icon('chevron'), el('span', null, 'Reasoning')), this.#thoughts);
    this.#prose = el('div', { class: 'prose', dir: 'auto', hidden: true });
    this.#calls = el('div', { class: 'calls', hidden: true });
    this.node = el('div', { class: 'segment', dataset: { plan } }, this.#reasoning, this.#prose, this.#calls);
  }

  get hasCalls() { return !this.#calls.hidden; }
  get hasText() { return !this.#prose.hidden; }

  addCall(call) {
    this.#calls.hidden = false;
    this.#calls.append(call.node);
  }

  restart() {
    this.#blocks = [];
    this.#plain = '';
    this.#prose.replaceChildren();
    this.#prose.hidden = true;
    this.#prose.classList.remove('streaming');
    this.#think('');
  }

  delta({ text, reasoning, blocks }) {
    if (reasoning) this.#think(this.#thoughts.textContent + reasoning);
    if (blocks?.length) {
      for (const b of blocks) this.#block(b);
      this.#streams();
    } else if (text && !this.#blocks.length) { // a bridge that does not render HTML
      this.#plain += text;
      this.#prose.textContent = this.#plain;
      this.#prose.classList.add('plain');
      this.#streams();
    }
  }

  completed({ text, html, reasoning }) {
    this.settled = true;
    this.recovered();
    if (reasoning) this.#think(reasoning);
    if (text) this.#write({ content: text, html, format: 'markdown' });
    else if (!text && !this.#prose.hidden) this.restart();
    this.stop();
  }

  message(m) {
    this.settled = true;
    this.settledByMessage = true;
    this.#write(m);
    this.stop();
  }

  failed(error) {
    this.recovered();
    this.#failure = el('p', { class: 'aside small muted' }, icon('warn'), el('span', null, `The model failed: ${error.message || error.code}`));
    this.node.append(this.#failure);
  }

  recovered() {
    this.#failure?.remove();
    this.#failure = null;
  }

  stop() { this.#prose.classList.remove('streaming'); }

  #streams() {
    this.#prose.hidden = false;
    this.#prose.classList.add('streaming');
  }

  #think(text) {
    this.#thoughts.textContent = text;
    this.#reasoning.hidden = !text;
  }

  #block({ index, html }) {
    if (!Number.isInteger(index) || index < 0 || index > 5000) return;
    while (this.#blocks.length <= index) {
      const block = el('div', { class: 'block' });
      this.#blocks.push(block);
      this.#prose.append(block);
    }
    renderHTML(this.#blocks[index], html);
  }

  #write(m) {
    this.#blocks = [];
    this.#prose.hidden = false;
    write(this.#prose, m);
  }
}

// write shows a message: server-rendered HTML, or plain text.
function write(node, { content, html, format }) {
  if (!html || format === 'text') {
    node.classList.add('plain');
    node.textContent = content ?? '';
    return;
  }
  node.classList.remove('plain');
  renderHTML(node, html);
  for (const pre of node.querySelectorAll('pre')) dress(pre);
}

// dress adds highlighting, the language and a copy button to a block of code.
function dress(pre) {
  const code = pre.querySelector('code') ?? pre;
  const language = languageOf(code);
  const text = code.textContent;
  if (language) fill(code, highlight(text, language));
  const copy = el('button', { class: 'icon-btn', type: 'button', 'aria-label': 'Copy the code', title: 'Copy', on: { click: async () => {
    try {
      await navigator.clipboard.writeText(text.replace(/\n$/, ''));
      fill(copy, icon('check'));
    } catch {
      fill(copy, icon('close')); // the browser forbids it outside https and localhost
    }
    setTimeout(() => fill(copy, icon('copy')), 1500);
  } } }, icon('copy'));
  const frame = el('figure', { class: 'code-block' });
  pre.replaceWith(frame);
  pre.tabIndex = 0;
  pre.setAttribute('aria-label', language ? `Code, ${language}` : 'Code');
  frame.append(el('figcaption', { class: 'tiny muted' }, el('span', null, language), copy), pre);
}
