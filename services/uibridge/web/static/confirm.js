// The card for a confirmation request: what would run, with exactly which arguments,
// why approval is needed, and until when. The answer is bound to what is shown: the
// card answers once, with the hash of its request.

import { el, fill, icon } from './dom.js';
import { diffLines, shown } from './diff.js';
import { highlight } from './code.js';
import { fields, object, pretty } from './exact.js';
import { countUnseen, oneLine, reveal } from './reveal.js';
import { Seen } from './seen.js';
import { serverNow } from './http.js';
import { RpcError } from './rpc.js';
import { LEVELS, refusal } from './words.js';
import { canUse, prove, register } from './passkey.js';
import * as fmt from './fmt.js';

const ARMED_AFTER = 350; // ms; prevents accidental clicks on a card that appears under the pointer
const SOON = 30_000; // ms before expiry at which the time left becomes a warning

let next = 1;

export class Decision {
  #context;
  #request;
  #argsText;
  #approvals = []; // the buttons that let the call run
  #refusal = null;
  #seen; // of the arguments
  #unread; // the hint that not everything was on the screen
  #left;
  #foot;
  #needs; // who must approve, and who has
  #approved; // the names of the people who have
  #remarks; // permanent remarks
  #sending; // progress of the answer
  #timer = 0;
  #answered = null; // the answer that this page has sent, unless it was refused
  #given = false; // this person's approval counts, and more people must approve
  #tried = false; // this page has sent an answer
  #outcome = null;
  #after;
  #armed = false;
  #late = false; // this page's answer was too late, and the card says so

  // options: {live} means that the request is new.
  constructor(context, request, argsText, { live = false } = {}) {
    this.#context = context;
    this.#request = request;
    this.#argsText = argsText;
    const id = `ask-${next++}`;
    const warning = request.security_warning;
    const level = LEVELS[warning?.level] ? warning.level : 'warn';
    this.#seen = new Seen(() => this.#enable());
    const what = describe(context, request, argsText, this.#seen);
    this.#left = el('span', { class: 'ask-left num' });
    this.#foot = el('div', { class: 'ask-foot' });
    this.#needs = el('p', { class: 'ask-needs', hidden: !request.approval });
    this.#approved = [...(request.approved ?? [])];
    this.#showNeeds();
    this.#remarks = el('div', { class: 'ask-remarks', role: 'status' });
    this.#sending = el('div', { class: 'ask-remarks small', role: 'status' });
    this.#after = el('span', { class: 'ask-after' });
    this.node = el('section', { class: 'ask', id, role: 'group', tabindex: -1, 'aria-labelledby': `${id}-title`, 'aria-describedby': `${id}-why`, dataset: { level, open: 'true', confirmation: request.confirmationId } },
      el('header', { class: 'ask-head' },
        el('span', { class: 'ask-level' }, icon(level === 'info' ? 'info' : 'warn'), LEVELS[level]),
        el('h3', { id: `${id}-title` }, what.title),
        this.#left),
      el('p', { class: 'ask-why', id: `${id}-why` }, warning?.message ? reveal(warning.message.replace(/([.!?])\.$/, '$1')) : 'The agent wants to do this, and policy asks for a person’s approval first.'),
      this.#needs,
      el('div', { class: 'ask-what' }, what.body),
      this.#remarks, this.#foot, this.#sending);
    this.#offer();
    if (live) setTimeout(() => this.#arm(), ARMED_AFTER);
    else this.#arm();
    this.#tick();
  }

  get id() { return this.#request.confirmationId; }
  get hash() { return this.#request.hash; }
  get isOpen() { return this.#outcome === null; }

  // spoken is the question for screen readers.
  get spoken() {
    const why = oneLine(this.#request.security_warning?.message ?? '', 300);
    return `The agent asks whether it may run ${this.#request.toolName}.${why && ` ${why.replace(/[.!?]*$/, '.')}`}`;
  }

  // focus moves to the card, from where Tab reaches its buttons.
  focus() {
    this.node.scrollIntoView({ block: 'nearest' });
    this.node.focus();
  }

  // approved shows that a person has approved, and that more people must.
  approved({ person, left, by }) {
    if (!this.#approved.includes(person)) this.#approved.push(person);
    this.#showNeeds(left);
    if (by !== this.#context.app.principal.writer) return;
    this.#given = true;
    this.#answered = null; // one who has approved may still refuse
    fill(this.#sending, el('p', { class: 'muted' }, 'Your approval counts. ', left === 1 ? 'One more person must approve it.' : `${left} more people must approve it.`));
    this.#enable();
  }

  #showNeeds(left) {
    const a = this.#request.approval;
    if (!a) return;
    const who = `${a.people > 1 ? `${a.people} people` : 'A person'}${a.by?.length ? ` of ${a.by.join(', ')}` : ''}${a.requester ? `, but not ${a.requester},` : ''} must approve this${a.passkey ? ', with a passkey' : ''}.`;
    const still = left ?? a.people - this.#approved.length;
    const so = this.#approved.length > 0 && [' Approved by ', el('strong', null, this.#approved.join(', ')), `; ${still === 1 ? 'one more is' : `${still} more are`} needed.`];
    fill(this.#needs, icon('lock'), el('span', { title: `Rule ${a.rule} of the configuration` }, who, so));
  }

  // resolved shows the decision and who made it, and removes the buttons.
  resolved({ outcome, by, source, reason, always, time, person, others, for: delegator, passkey }) {
    if (this.#outcome && this.#outcome !== 'withdrawn') return;
    const mine = this.#answered && by === this.#context.app.principal.writer && (outcome === 'approved') === this.#answered.approved;
    const who = `${others?.length ? `${others.join(', ')} and ` : ''}${mine ? 'you' : person ?? by}${delegator ? ` for ${delegator}` : ''}`;
    const where = mine && source === 'web' ? '' : ({ web: ' in a browser', chat: ' in a terminal', terminal: ' in a terminal' }[source] ?? (source ? ` in ${source}` : ''));
    const at = time ? ` at ${fmt.timeSeconds(time)}` : '';
    const words = {
      approved: ['check', 'Approved', ` by ${who}${where}${at}${passkey ? ', with a passkey' : ''}, ${always ? 'always for this session' : 'once'}`],
      denied: ['close', 'Refused', ` by ${who}${where}${at}`],
      expired: ['clock', 'Expired', ` without an answer${at}, which means refused`],
    }[outcome] ?? ['info', outcome, ` by ${who}${where}${at}`];
    this.#late = this.#tried && !mine && outcome !== 'expired';
    const late = this.#late && ' Your answer came later, and does not count.';
    const said = reason?.replace(/^refused by [\w-]+(: )?/, ''); // the line already says it
    this.#close(outcome, words, [said && el('q', { class: 'ask-reason' }, reveal(said)), late && el('span', null, late), always && el('div', { class: 'ask-grant' }, 'Also from now on: ', grant(always))]);
  }

  // withdrawn closes the request without an answer.
  withdrawn() {
    if (this.#outcome) return;
    this.#close('withdrawn', ['info', 'No longer needed', ': the turn ended before anybody answered'], []);
  }

  // happened shows the outcome of the call.
  happened(words) { fill(this.#after, words); }

  // remark adds a remark, such as a refused answer.
  remark(words) { this.#remarks.append(el('p', { class: 'small muted' }, words)); }

  // refused shows, in all pages, that an answer does not count.
  refused(principal, reason, person = '') {
    const mine = principal === this.#context.app.principal.writer;
    if (this.isOpen) this.remark(`An answer by ${mine ? 'you' : person || principal} was refused: ${reason?.replace(/[.]$/, '') || 'it did not match the request'}.`);
    else if (!mine) this.remark(`${principal} answered later, which does not count.`);
    else if (!this.#late) this.remark('Your answer came later, and does not count.');
  }

  // connected enables the buttons, or disables them while nothing can be sent.
  connected() { this.#enable(); }

  #close(outcome, [drawing, verb, rest], more) {
    this.#outcome = outcome;
    clearTimeout(this.#timer);
    this.#seen.end();
    const focused = this.node.contains(document.activeElement);
    this.node.dataset.open = 'false';
    this.node.dataset.outcome = outcome;
    this.#left.replaceChildren();
    this.#sending.remove();
    fill(this.#foot, el('p', { class: 'ask-outcome' }, icon(drawing), el('span', null, el('strong', null, verb), rest, '. ', more, ' ', this.#after)));
    const what = this.node.querySelector('.ask-what');
    if (what && !what.closest('details')) { // what was decided on is kept, folded
      const fold = el('details', { class: 'fold ask-what-fold' }, el('summary', null, icon('chevron'), 'What was asked'));
      what.replaceWith(fold);
      fold.append(what);
    }
    if (focused) this.node.focus();
    this.#context.decided(this);
  }

  #offer() {
    const app = this.#context.app;
    if (!app.can('approve')) {
      fill(this.#foot, el('p', { class: 'note' }, icon('lock'), 'Your token may see this, but not approve it.'));
      return;
    }
    const approve = el('button', { class: 'btn btn-primary ask-approve', type: 'button', on: { click: () => this.#answer({ approved: true }) } }, 'Approve once');
    const refuse = el('button', { class: 'btn btn-danger ask-refuse', type: 'button', on: { click: () => this.#answer({ approved: false, reason: reason.value.trim() }) } }, 'Refuse');
    const reason = el('input', { class: 'input ask-reason-input', type: 'text', maxlength: 500, placeholder: 'Reason (optional)', 'aria-label': 'Reason for refusing (optional), shown to the agent', on: { keydown: (e) => { if (e.key === 'Enter' && !e.isComposing) { e.preventDefault(); refuse.click(); } } } });
    const grants = (this.#request.always ?? []).map((g) => el('li', null,
      el('button', { class: 'btn ask-always', type: 'button', on: { click: () => this.#answer({ approved: true, always: g }) } }, el('span', { class: 'ask-grant' }, grant(g)))));
    this.#approvals = [approve, ...grants.map((li) => li.firstChild)];
    this.#refusal = refuse;
    this.#unread = el('p', { class: 'small muted ask-unread' }, 'To approve, read all of it: scroll through what is asked, or unfold it.');
    const more = grants.length > 0 && el('details', { class: 'fold ask-more' },
      el('summary', null, icon('chevron'), 'Always…'),
      el('div', { class: 'ask-more-body' }, el('p', { class: 'small muted' }, 'Approve this, and until /reset do not ask again in this session for:'), el('ul', null, grants)));
    fill(this.#foot, this.#unread, el('div', { class: 'ask-actions' }, approve, el('div', { class: 'ask-no' }, reason, refuse)), more);
    this.#enable();
  }

  #arm() {
    this.#armed = true;
    this.#enable();
  }

  #enable() {
    const over = this.#remaining() <= 0;
    const off = !this.#armed || over || Boolean(this.#answered) || !this.#context.app.connection.isOpen;
    for (const b of this.#approvals) b.disabled = off || this.#given || !this.#seen.all;
    if (!this.#refusal) return;
    this.#refusal.disabled = off;
    this.#unread.hidden = this.#seen.all;
  }

  async #answer({ approved, reason, always }) {
    if (!this.isOpen || this.#answered) return;
    this.#answered = { approved };
    this.#enable();
    fill(this.#sending, el('p', { class: 'muted' }, 'Sending your answer…'));
    const { confirmationId, hash } = this.#request;
    try {
      this.#tried = true;
      const passkey = approved && this.#request.approval?.passkey && await this.#prove({ confirmationId, hash });
      const receipt = await this.#context.app.rpc.call('provideConfirmation', { confirmationId, hash, approved, ...(reason && { reason }), ...(always && { always }), ...(passkey && { passkey }) });
      fill(this.#sending, el('p', { class: 'muted' }, receipt.left ? `Your approval counts. ${receipt.left === 1 ? 'One more person' : `${receipt.left} more people`} must approve it.` : receipt.counted === false ? `Your answer does not count: ${receipt.reason || 'it came too late'}.` : 'Your answer was stored. Waiting for core…'));
      if (receipt.left) this.#given = true;
      if ((receipt.counted === false || receipt.left) && this.isOpen) this.#answered = null; // it may still be decided
      this.#enable();
    } catch (e) {
      fill(this.#sending, el('p', { class: 'ask-error', role: 'alert' }, refusal(e)));
      this.#answered = null; // the bridge stored nothing, or repeating the answer is harmless: the first one counts
      this.#enable();
    }
  }

  // prove asks for the person's passkey, and for registering one first if they have none.
  async #prove(what) {
    if (!canUse()) throw new RpcError({ code: 'unavailable', message: 'This approval needs a passkey, which this browser cannot use on this page. Passkeys need https or localhost.' });
    const subject = { ...this.#context.app.session(), ...what };
    try {
      fill(this.#sending, el('p', { class: 'muted' }, 'Use your passkey…'));
      return await prove(subject);
    } catch (e) {
      if (e.code !== 'conflict') throw e;
      fill(this.#sending, el('p', { class: 'muted' }, 'You have no passkey here yet: register one now…'));
      await register();
      return prove(subject);
    }
  }

  #remaining() { return Date.parse(this.#request.expiresAt) - serverNow(); }

  #tick() {
    if (!this.isOpen) return;
    const left = this.#remaining();
    if (Number.isNaN(left)) return;
    if (left <= 0) {
      fill(this.#left, 'Expired; waiting for core to say so');
      this.#enable();
      return;
    }
    const soon = left < SOON;
    if (soon && this.#left.dataset.soon !== 'true') {
      this.#left.dataset.soon = 'true';
      this.#context.app.announce(`The request to run ${this.#request.toolName} expires in ${Math.round(left / 1000)} seconds.`, true);
    }
    fill(this.#left, el('span', { class: 'visually-hidden' }, `Expires at ${fmt.timeSeconds(this.#request.expiresAt)}. `),
      el('span', { 'aria-hidden': 'true', title: `Expires at ${fmt.exact(this.#request.expiresAt)}` }, `${remaining(left)} left`));
    this.#timer = setTimeout(() => this.#tick(), Math.min(left, left % 1000 || 1000));
  }
}

function remaining(ms) {
  const s = Math.ceil(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, '0')}`;
  return fmt.duration(s * 1000);
}

// grant shows the exact pattern of an approval for later calls.
function grant(g) {
  const args = Object.entries(g.args ?? {});
  if (!args.length) return [el('code', null, reveal(g.tool)), g.hash ? ' with exactly these arguments' : ' with any arguments'];
  return [el('code', null, reveal(g.tool)), ' with ', args.map(([name, pattern], i) => [i > 0 && ' and ', el('code', null, reveal(`${name} = ${pattern}`))]), args.some(([, p]) => p.endsWith('/*')) && ' (and everything below)'];
}

// describe returns the card's title and body for a call. Everything that matters for the
// decision is visible: an edit as a diff, multi-line strings as lines, and all other
// arguments as JSON.
function describe(context, request, raw, seen) {
  const tool = request.toolName;
  const title = ['Run ', el('code', null, reveal(tool)), request.owner && [' of the plugin ', el('code', null, reveal(request.owner))], '?'];
  let args = {};
  try {
    args = JSON.parse(raw);
  } catch {
    // Shown unchanged.
  }
  const unseen = countUnseen(JSON.stringify(args) ? texts(args) : raw);
  const body = [];
  if (request.answer) {
    body.push(el('p', { class: 'note note-warn' }, icon('info'), ['The plugin ', el('code', null, reveal(request.answer.by)), ' answers instead of the tool, which will not run. If you approve, its answer counts as the result:']),
      seen.part(el('pre', { class: 'code ask-args', tabindex: 0, role: 'group', 'aria-label': 'The answer instead, as JSON' }, colour(JSON.stringify(request.answer.data ?? null, null, 2), 'json'))));
  }
  if (unseen > 0) body.push(el('p', { class: 'note note-warn' }, icon('warn'), unseen === 1 ? 'One character cannot be seen, or changes how others look. It is shown as its code point.' : `${unseen} characters cannot be seen, or change how others look. They are shown as code points.`));
  const json = (text, label) => el('pre', { class: 'code ask-args', tabindex: 0, role: 'group', 'aria-label': label }, colour(pretty(text), 'json'));
  const all = fields(raw);
  const edit = all && editOf(context, tool, args);
  const drawn = (f) => (edit ? edit.drawn.includes(f.name) : typeof args[f.name] === 'string' && args[f.name].includes('\n'));
  const blocks = (all ?? []).filter(drawn);
  if (!blocks.length) return { title, body: [...body, seen.part(json(raw, 'Exact arguments, as JSON'))] };
  const rest = all.filter((f) => !drawn(f));
  if (rest.length) body.push(seen.part(json(object(rest), 'The other arguments, as JSON')));
  if (edit) body.push(el('p', { class: 'ask-arg' }, edit.about), ...edit.views.map((v) => seen.part(v)));
  else {
    for (const { name } of blocks) {
      body.push(el('p', { class: 'ask-arg' }, el('code', null, reveal(name))),
        seen.part(el('pre', { class: 'code ask-code', tabindex: 0, role: 'group', 'aria-label': name }, colour(args[name], languageFor(tool)))));
    }
  }
  body.push(el('details', { class: 'fold' }, el('summary', null, icon('chevron'), 'All of it as JSON'), json(raw, 'Exact arguments, as JSON')));
  return { title, body };
}

function texts(value) {
  if (typeof value === 'string') return value;
  if (value === null || typeof value !== 'object') return '';
  return Object.entries(value).map(([k, v]) => k + texts(v)).join('');
}

// colour highlights a text, and makes invisible characters in it visible.
export function colour(text, language) {
  return highlight(text, language).flatMap((piece) => (typeof piece === 'string' ? reveal(piece) : [fill(piece, reveal(piece.textContent))]));
}

function languageFor(tool) {
  if (/python/.test(tool)) return 'python';
  if (/shell|bash/.test(tool)) return 'sh';
  return '';
}

const OLD_AND_NEW = [['old', 'new'], ['old_text', 'new_text'], ['old_string', 'new_string'], ['old_str', 'new_str'], ['before', 'after']];

// editOf returns the change that a call would make to a file, or null: {about, views, drawn},
// where drawn are the arguments that the views show in full.
function editOf(context, tool, args) {
  for (const drawn of OLD_AND_NEW) {
    const [before, after] = drawn.map((name) => args[name]);
    if (typeof before === 'string' && typeof after === 'string') {
      return { about: before ? 'The change' : 'Everything is new', views: diffViews(before, after), drawn };
    }
  }
  if (!/(^|:)(write|write_file|append_file)$/.test(tool) || typeof args.content !== 'string') return null;
  const known = context.files.known(tool, typeof args.path === 'string' ? args.path : '');
  const is = (about, before = '') => ({ about, views: diffViews(before, args.content), drawn: ['content'] });
  if (/append_file$/.test(tool) || args.mode === 'append') return is('Appends');
  if (args.mode === 'create') return is('Creates a new file; does not replace an existing one');
  if (known) return is(`Replaces the whole content; compared with what was last ${known.how} in this session`, known.content);
  return is(/write_file$/.test(tool) && args.mode !== 'overwrite' ? 'Creates a new file; does not replace an existing one' : 'Replaces the whole content');
}

// diffViews shows both texts in full, with the unchanged lines.
function diffViews(before, after) {
  const ops = diffLines(before, after);
  if (!ops) return [['Old', before], ['New', after]].map(([name, text]) => el('pre', { class: 'code', tabindex: 0, role: 'group', 'aria-label': name }, reveal(text)));
  if (!ops.length) return [el('p', { class: 'small muted' }, 'The text is empty.')];
  const words = { '+': 'added', '-': 'removed' };
  const rows = ops.map((o) => {
    const [text, open] = shown(o.text);
    return el('div', { class: `diff-row ${o.op === '+' ? 'diff-add' : o.op === '-' ? 'diff-del' : ''}` },
      el('span', { class: 'diff-no num', 'aria-hidden': 'true' }, o.op === '+' ? '' : o.old), el('span', { class: 'diff-no num', 'aria-hidden': 'true' }, o.op === '-' ? '' : o.new),
      el('span', { class: 'diff-op', 'aria-hidden': 'true' }, o.op), words[o.op] && el('span', { class: 'visually-hidden' }, `${words[o.op]}: `),
      el('span', { class: 'diff-text' }, reveal(text), open && el('span', { class: 'diff-eof' }, ' no newline at end')));
  });
  const added = ops.filter((o) => o.op === '+').length;
  const removed = ops.filter((o) => o.op === '-').length;
  return [el('div', { class: 'diff mono', tabindex: 0, role: 'group', 'aria-label': `Change: ${fmt.count(added, 'line')} added, ${removed} removed` }, rows)];
}

