// A tool call in the conversation: one line with the tool and its outcome; its live
// output; its arguments and result, folded; its files.

import { el, fill, icon } from './dom.js';
import { highlight } from './code.js';
import { field, pretty } from './exact.js';
import { oneLine, reveal } from './reveal.js';
import { toolError } from './words.js';
import { Decision, colour } from './confirm.js';
import { isPicture, picture } from './files.js';
import { why } from './why.js';
import * as fmt from './fmt.js';

const STATUS = {
  planned: ['planned', 'clock'],
  asking: ['waiting for a decision', 'lock'],
  running: ['running', null],
  done: ['succeeded', 'check'],
  failed: ['failed', 'close'],
  refused: ['not run', 'close'],
  unknown: ['outcome unknown', 'warn'],
};
const MOST_OUTPUT = 64 * 1024; // characters of live output that are kept
const MOST_SHOWN = 16 * 1024; // characters of a result that are shown at first
const NOT_RUN = new Set(['denied', 'confirmation_expired', 'cancelled', 'not_run', 'skipped', 'unknown_tool', 'invalid_arguments', 'invalid_plan']);

// Call is one call. context is shared by the conversation: {app, artifactURL, files}.
export class Call {
  #context;
  #status = 'planned';
  #summary;
  #glyph;
  #say;
  #took;
  #args;
  #live;
  #liveText = '';
  #body;
  #result;
  #below;
  #argsRaw = '';
  #why = null;

  constructor(context, { call, tool, argsText = '{}', parent = '' }) {
    this.#context = context;
    this.id = call;
    this.tool = tool;
    this.decision = null;
    this.#glyph = el('span', { class: 'call-glyph' });
    this.#summary = el('span', { class: 'call-args mono clip' });
    this.#say = el('span', { class: 'call-status' });
    this.#took = el('span', { class: 'call-took num' });
    this.#args = el('pre', { class: 'code', tabindex: 0, role: 'group', 'aria-label': 'Arguments' });
    this.#result = el('div', { class: 'call-result' });
    this.#body = el('div', { class: 'call-body' }, el('h3', null, 'Arguments'), this.#args, this.#result);
    this.#live = el('pre', { class: 'call-live code', role: 'group', 'aria-label': 'Output so far', tabindex: 0, hidden: true });
    this.#below = el('div', { class: 'call-below' });
    this.fold = el('details', { class: 'call-fold' },
      el('summary', { class: 'call-line' }, this.#glyph, el('span', { class: 'call-tool mono' }, reveal(tool)), this.#summary, this.#say, this.#took, icon('chevron')),
      this.#body);
    this.node = el('section', { class: parent ? 'call call-child' : 'call', 'aria-label': `Tool call ${tool}`, dataset: { call, tool } }, this.fold, this.#live, this.#below);
    this.args(argsText);
    this.status('planned');
  }

  // args sets the arguments, as JSON text.
  args(text) {
    if (!text || text === this.#argsRaw) return;
    this.#argsRaw = text;
    let value = {};
    try {
      value = JSON.parse(text);
    } catch {
      // Shown unchanged.
    }
    fill(this.#summary, reveal(oneLine(headline(value))));
    fill(this.#args, colour(pretty(text), 'json'));
  }

  status(name, words = STATUS[name][0]) {
    this.#status = name;
    const [, drawing] = STATUS[name];
    this.node.dataset.status = name;
    fill(this.#glyph, drawing ? icon(drawing) : el('span', { class: 'spinner', 'aria-hidden': 'true' }));
    fill(this.#say, name === 'done' ? el('span', { class: 'visually-hidden' }, words) : words);
  }

  get over() { return ['done', 'failed', 'refused', 'unknown'].includes(this.#status); }

  // asked shows the request for a decision.
  asked(request, argsText, options) {
    this.args(argsText);
    const before = this.decision;
    if (before?.hash === request.hash) return before;
    if (!this.over) this.status('asking');
    this.decision = new Decision(this.#context, request, argsText, options);
    this.#below.prepend(this.decision.node);
    if (before) this.decision.remark('The tool has changed since it was approved: its plugin or its description is different now.');
    return this.decision;
  }

  // audited shows what the security layer decided, unless it simply allowed the call.
  audited(audit) {
    if (audit.effect === 'allow' && !audit.grant) return;
    if (audit.action === 'confirmation') {
      this.decision?.refused(audit.principal, audit.reason, audit.person);
      return;
    }
    if (audit.effect === 'confirm') return; // the request shows it
    const words = audit.effect === 'deny' ? `Denied by ${audit.rule || 'policy'}: ${audit.reason || 'no reason given'}` : 'Approved by “always for this session”';
    this.#below.append(el('p', { class: 'call-note small muted' }, icon('lock'), el('span', null, words)));
  }

  // explain shows why the tool was called.
  explain(considered) {
    this.#why?.remove();
    this.#why = why(this.tool, considered);
    this.#args.after(this.#why);
  }

  // started shows that an executor runs it.
  started({ args, approvedBy, attempts }, argsText) {
    this.args(argsText ?? JSON.stringify(args));
    if (this.over) return;
    this.status('running', attempts > 1 ? `running, attempt ${attempts}` : 'running');
    if (approvedBy) this.node.dataset.approvedBy = approvedBy;
    this.decision?.happened('It is running now.');
  }

  // printed adds live output.
  printed({ text, stream }) {
    if (this.over || !text) return;
    this.#liveText += text;
    if (this.#liveText.length > MOST_OUTPUT) {
      this.#liveText = this.#liveText.slice(-MOST_OUTPUT / 2);
      fill(this.#live, '… ', this.#liveText);
    } else {
      this.#live.append(stream === 'stderr' ? el('span', { class: 'stderr' }, text) : text);
    }
    this.#live.hidden = false;
    this.#live.scrollTop = this.#live.scrollHeight;
  }

  // ended shows the result.
  ended({ result, duration_ms: ms, note }) {
    const code = result.error?.code ?? '';
    const status = result.success ? 'done' : code === 'outcome_unknown' ? 'unknown' : NOT_RUN.has(code) ? 'refused' : 'failed';
    // For an unknown outcome, core reports what is known: it was cancelled, or its runner
    // has stopped.
    const words = status === 'unknown' && result.error.message ? oneLine(result.error.message) : exited(result) || toolError(code);
    this.status(status, result.success ? undefined : words);
    this.#took.textContent = ms ? fmt.duration(ms) : '';
    this.#live.hidden = true;
    this.#live.replaceChildren();
    this.#liveText = '';
    fill(this.#result, this.#show(result, note));
    this.decision?.withdrawn(); // does nothing if it was answered
    const files = filesOf(result.data);
    for (const s of agentsOf(this.tool, result.data)) this.#below.append(el('a', { class: 'call-note small', href: `#/${s.agent}/${s.session}` }, `The session of agent ${s.agent}`));
    if (files.length) this.#below.append(el('ul', { class: 'artifacts', 'aria-label': 'Files' }, files.map((f) => this.#artifact(f))));
    this.decision?.happened(result.success ? `It ran${ms ? ` in ${fmt.duration(ms)}` : ''}, and succeeded.` : status === 'refused' ? 'It did not run.' : `It ${toolError(code)}.`);
    this.#context.files.learn(this.tool, this.#argsRaw, result);
  }

  // abandoned shows that the turn ended without its result.
  abandoned() {
    if (!this.over) this.status('refused', 'the turn ended first');
    this.decision?.withdrawn();
  }

  #show(result, note) {
    const out = [];
    if (result.error) {
      out.push(el('h3', null, 'Error'), el('p', { class: 'call-error' }, el('code', null, result.error.code), ' ', reveal(result.error.message ?? '')));
      if (result.error.details?.length) out.push(el('ul', { class: 'call-details' }, result.error.details.map((d) => el('li', null, reveal(d)))));
    }
    const d = result.data;
    if (isRun(d)) {
      if (d.stdout) out.push(el('h3', null, 'Output'), long(d.stdout));
      if (d.stderr) out.push(el('h3', null, 'Errors printed'), long(d.stderr, 'stderr'));
      if (d.result !== undefined && d.result !== null) out.push(el('h3', null, 'Value'), long(typeof d.result === 'string' ? d.result : fmt.json(d.result)));
      if (d.exit_code) out.push(el('p', { class: 'small muted' }, `Exit code ${d.exit_code}${d.signal ? `, ended by ${d.signal}` : ''}`));
      for (const why of d.artifacts_left_out ?? []) out.push(el('p', { class: 'small muted' }, 'Left out: ', reveal(why)));
      if (d.notice) out.push(el('p', { class: 'small muted' }, reveal(d.notice)));
      if (!d.stdout && !d.stderr && (d.result === undefined || d.result === null) && !result.error) out.push(el('p', { class: 'small muted' }, 'It printed nothing.'));
    } else if (d !== undefined && d !== null) {
      out.push(el('h3', null, 'Result'), typeof d === 'string' ? long(d) : long(fmt.json(d), '', 'json'));
    } else if (result.success) out.push(el('p', { class: 'small muted' }, 'It returned nothing.'));
    if (note) out.push(el('p', { class: 'small muted' }, 'Core adds: ', reveal(note)));
    return out;
  }

  #artifact({ path, ref, media_type: type, bytes }) {
    const url = this.#context.artifactURL(ref);
    const name = (path || ref).split('/').pop();
    const about = [el('span', { class: 'artifact-name clip' }, reveal(name)), el('span', { class: 'tiny muted num' }, fmt.bytes(bytes))];
    const save = (drawing) => el('a', { class: 'artifact-line', href: url, download: name, title: 'Download' }, drawing, about, icon('down'));
    if (!isPicture(type)) return el('li', { class: 'artifact' }, save(icon('file')));
    const img = el('img', { alt: `Picture ${name}, made by ${this.tool}`, decoding: 'async' });
    picture(img, url, () => img.replaceWith(el('span', { class: 'artifact-lost muted small' }, 'The picture cannot be shown.')));
    return el('li', { class: 'artifact artifact-picture' }, el('a', { href: url, target: '_blank', rel: 'noopener', title: 'Open the picture' }, img), save());
  }
}

// headline returns the most telling argument of a call, in one line.
function headline(args) {
  if (args === null || typeof args !== 'object') return JSON.stringify(args) ?? '';
  for (const key of ['task', 'url', 'command', 'path', 'expression', 'query', 'text', 'code', 'timezone']) {
    if (typeof args[key] === 'string' && args[key]) return args[key];
  }
  if (Array.isArray(args.argv)) return args.argv.join(' ');
  const all = JSON.stringify(args);
  return all === '{}' ? '' : all;
}

// agentsOf lists the sessions in which other agents worked for a call.
function agentsOf(tool, data) {
  if (!tool.startsWith('agent:')) return [];
  const all = Array.isArray(data?.agents) ? data.agents : [data];
  return all.filter((s) => /^[\w-]+$/.test(s?.agent ?? '') && /^[\w-]+$/.test(s?.session ?? ''));
}

function isRun(d) { return d !== null && typeof d === 'object' && typeof d.stdout === 'string' && 'exit_code' in d; }

// exited describes the exit of a program that failed: "exit 1".
function exited({ error, data }) {
  return error?.code === 'tool_failed' && isRun(data) && data.exit_code ? `exit ${Number(data.exit_code)}` : '';
}

function long(text, extra = '', language = '') {
  const pre = el('pre', { class: `code ${extra}`, tabindex: 0, role: 'group', 'aria-label': 'Output' });
  const all = () => fill(pre, language ? highlight(text, language) : text);
  if (text.length <= MOST_SHOWN) {
    all();
    return pre;
  }
  fill(pre, text.slice(0, MOST_SHOWN), '…');
  const button = el('button', { class: 'btn btn-small', type: 'button', on: { click: () => { all(); button.remove(); pre.focus(); } } }, `Show all of it (${fmt.bytes(text.length)})`);
  return [pre, button];
}

function filesOf(data) {
  if (data === null || typeof data !== 'object') return [];
  const all = Array.isArray(data.artifacts) ? data.artifacts : [data];
  return all.filter((f) => f && typeof f.ref === 'string' && typeof f.bytes === 'number');
}

// Files remembers what the session has last read or written, so that a request to overwrite a
// file can be shown as a diff. It is labelled as past content, never as the present one.
export class Files {
  #known = new Map();

  learn(tool, argsRaw, result) {
    if (!result.success) return;
    const path = text(argsRaw, 'path');
    if (!path) return;
    const [group, verb] = split(tool);
    if (/^(read|read_file)$/.test(verb) && typeof result.data?.content === 'string' && !result.data.next_offset && !result.data.truncated && !text(argsRaw, 'offset')) {
      this.#known.set(`${group} ${path}`, { content: result.data.content, how: 'read' });
    } else if (/^(write|write_file)$/.test(verb) && text(argsRaw, 'mode') !== 'append') this.#known.set(`${group} ${path}`, { content: text(argsRaw, 'content'), how: 'written' });
    else this.#known.delete(`${group} ${path}`);
  }

  // known returns {content, how} of a file, or undefined.
  known(tool, path) { return this.#known.get(`${split(tool)[0]} ${path}`); }

  forget() { this.#known.clear(); }
}

function split(tool) {
  const at = tool.lastIndexOf(':');
  return at < 0 ? ['', tool] : [tool.slice(0, at), tool.slice(at + 1)];
}

function text(raw, name) {
  try {
    const value = JSON.parse(field(raw, [name]) || 'null');
    return typeof value === 'string' ? value : value === null ? '' : String(value);
  } catch {
    return '';
  }
}

