// One turn as a tree of bars over time. It is a treegrid: arrow keys move, open and
// close; the details of the selected row are shown below.

import { el, fill, icon } from './dom.js';
import { duration, exact } from './fmt.js';
import { facts, jsonBlock, mono, verb } from './facts.js';
import { reveal } from './reveal.js';
import { brief, grantText, LANE_LABEL, ruleText } from './describe.js';

// Waterfall draws timelines (results of getTimeline) into node.
export class Waterfall {
  #app;
  #timeline = null;
  #rows = new Map(); // by the span's id: {span, depth, node, children, parent}
  #order = [];
  #closed = new Set();
  #chosen = '';
  #even = false;
  #body; #axis; #detail; #scale; #grid;

  constructor(app) {
    this.#app = app;
    this.#body = el('div', { role: 'rowgroup', class: 'wf-rows' });
    this.#axis = el('div', { class: 'wf-axis', 'aria-hidden': 'true' });
    this.#detail = el('section', { class: 'wf-detail', 'aria-label': 'Details of the selected row', hidden: true, tabindex: -1 });
    this.#scale = el('button', {
      type: 'button', class: 'btn btn-small btn-quiet', 'aria-pressed': 'false', title: 'Long waits hide short work: even out makes short spans wider and long ones narrower',
      on: { click: () => { this.#even = !this.#even; this.#scale.setAttribute('aria-pressed', String(this.#even)); this.#place(); } },
    }, 'Even out');
    this.#grid = el('div', {
      class: 'wf', role: 'treegrid', 'aria-label': 'What happened in the turn, by time', on: { keydown: (e) => this.#keys(e), click: (e) => this.#clicked(e) },
    },
    el('div', { class: 'wf-row wf-head', role: 'row' },
      el('span', { role: 'columnheader', class: 'wf-name' }, 'What'), el('span', { role: 'columnheader', class: 'wf-time' }, el('span', { class: 'visually-hidden' }, 'When'), this.#axis), el('span', { role: 'columnheader', class: 'wf-took' }, 'Took')),
    this.#body);
    const keys = el('p', { class: 'wf-keys faint tiny' }, el('kbd', null, '↑'), el('kbd', null, '↓'), ' step through, ', el('kbd', null, '←'), el('kbd', null, '→'), ' fold and unfold');
    this.node = el('div', { class: 'wf-view', hidden: true }, el('div', { class: 'wf-bar row' }, legend(), el('span', { class: 'grow' }), this.#scale), el('div', { class: 'wf-scroll' }, this.#grid, keys), this.#detail);
  }

  // clear removes the timeline.
  clear() {
    this.#timeline = null;
    this.#chosen = '';
    this.#closed.clear();
    this.#rows.clear();
    this.#order = [];
    this.#body.replaceChildren();
    this.node.hidden = true;
    this.#detail.hidden = true;
    this.#detail.replaceChildren();
  }

  // show draws a timeline. It keeps the selection if the turn is the same.
  show(timeline) {
    const first = this.#timeline?.turn !== timeline.turn;
    if (first) this.clear();
    const focused = this.#grid.contains(document.activeElement) ? document.activeElement.dataset?.span : '';
    this.#timeline = timeline;
    this.node.hidden = false;
    this.#rows.clear();
    this.#order = timeline.spans.map((span) => {
      const parent = this.#rows.get(span.parent);
      const row = { span, parent, depth: parent ? parent.depth + 1 : 0, children: 0 };
      if (parent) parent.children++;
      this.#rows.set(span.id, row);
      return row;
    });
    fill(this.#body, this.#order.map((row) => this.#row(row)));
    this.#fold();
    this.#place();
    if (!this.#rows.has(this.#chosen)) this.#chosen = '';
    this.#mark(this.#chosen || this.#order[0]?.span.id || '', Boolean(this.#chosen));
    if (focused) this.#rows.get(focused)?.node.focus();
  }

  #row(row) {
    const { span, depth } = row;
    row.bar = el('span', { class: 'wf-fill', dataset: { status: span.status } });
    row.took = el('span', { class: 'wf-took num', role: 'gridcell' }, span.duration_us === 0 ? '' : duration(span.duration_us / 1000));
    row.twist = el('span', { class: 'wf-twist', 'aria-hidden': 'true' }, row.children ? icon('chevron') : null);
    row.node = el('div', {
      class: 'wf-row', role: 'row', tabindex: -1, dataset: { span: span.id, lane: span.lane, status: span.status, kind: span.kind },
      'aria-level': depth + 1, 'aria-selected': 'false', 'aria-label': label(span),
    },
    el('span', { class: 'wf-name', role: 'gridcell', style: { '--depth': String(Math.min(depth, 6)) } }, row.twist, el('span', { class: 'wf-dot', 'aria-hidden': 'true' }), el('span', { class: 'clip', title: span.name }, reveal(brief(span.name))), mark(span.status)),
    el('span', { class: 'wf-time', role: 'gridcell' }, row.bar), row.took);
    return row.node;
  }

  // fold hides the rows under closed ones.
  #fold() {
    for (const row of this.#order) {
      row.hidden = Boolean(row.parent && (row.parent.hidden || this.#closed.has(row.parent.span.id)));
      row.node.hidden = row.hidden;
      row.node.setAttribute('aria-label', label(row.span));
      if (row.children) row.node.setAttribute('aria-expanded', String(!this.#closed.has(row.span.id)));
      if (row.children && !row.twist.firstChild) row.twist.append(icon('chevron'));
    }
  }

  // place positions the bars and the axis on the scale.
  #place() {
    const end = Math.max(1, ...this.#order.map(({ span }) => span.start_us + span.duration_us));
    const at = this.#even ? evened(this.#order.map((r) => r.span), end) : (us) => us / end;
    for (const { span, bar } of this.#order) {
      const left = at(span.start_us);
      const width = at(span.start_us + span.duration_us) - left;
      bar.style.setProperty('--left', `${(left * 100).toFixed(3)}%`);
      bar.style.setProperty('--width', `${(width * 100).toFixed(3)}%`);
      bar.classList.toggle('wf-mark', span.duration_us === 0);
    }
    const wide = 56 / (this.#axis.clientWidth || 300); // share of the width that a label takes
    let free = 0;
    const ticks = this.#even ? [...new Set(this.#order.filter((r) => !r.parent).map((r) => r.span.start_us)), end] : nice(end);
    this.#grid.style.setProperty('--grid', ticks.map((us) => `linear-gradient(var(--border), var(--border)) ${(at(us) * 100).toFixed(2)}% 0 / 1px 100% no-repeat`).join(', '));
    fill(this.#axis, ticks.map((us) => {
      const left = Math.min(at(us), 1 - wide);
      if (left < free) return null; // labels would overlap
      free = left + wide;
      return el('span', { class: `wf-tick ${left < at(us) ? 'wf-tick-last' : ''}`, style: { '--left': `${(left * 100).toFixed(3)}%` } }, us === 0 ? '0' : duration(us / 1000));
    }));
  }

  #clicked(event) {
    const node = event.target.closest('.wf-row[data-span]');
    if (!node) return;
    const row = this.#rows.get(node.dataset.span);
    if (event.target.closest('.wf-twist') && row.children) this.#toggle(row);
    this.choose(row.span.id);
  }

  #toggle(row, open = this.#closed.has(row.span.id)) {
    if (open) this.#closed.delete(row.span.id);
    else this.#closed.add(row.span.id);
    this.#fold();
  }

  // choose selects a span and shows its details.
  choose(id) {
    const row = this.#rows.get(id);
    if (!row) return;
    for (let p = row.parent; p; p = p.parent) this.#closed.delete(p.span.id);
    this.#fold();
    this.#mark(id, true);
    row.node.focus({ preventScroll: true });
    row.node.scrollIntoView({ block: 'nearest' });
  }

  #mark(id, chosen) {
    for (const { node } of this.#order) {
      node.tabIndex = node.dataset.span === id ? 0 : -1;
      node.setAttribute('aria-selected', String(chosen && node.dataset.span === id));
    }
    this.#chosen = chosen ? id : '';
    if (chosen) this.#showDetail(this.#rows.get(id));
  }

  #keys(event) {
    const node = event.target.closest('.wf-row[data-span]');
    if (!node || event.altKey || event.ctrlKey || event.metaKey) return;
    const row = this.#rows.get(node.dataset.span);
    const shown = this.#order.filter((r) => !r.hidden);
    const at = shown.indexOf(row);
    const open = row.children > 0 && !this.#closed.has(row.span.id);
    let to;
    switch (event.key) {
      case 'ArrowDown': to = at + 1; break;
      case 'ArrowUp': to = at - 1; break;
      case 'Home': to = 0; break;
      case 'End': to = shown.length - 1; break;
      case 'PageDown': to = at + 10; break;
      case 'PageUp': to = at - 10; break;
      case 'ArrowRight':
        if (open) to = at + 1;
        else if (row.children) this.#toggle(row, true);
        break;
      case 'ArrowLeft':
        if (open) this.#toggle(row, false);
        else if (row.parent) to = shown.indexOf(row.parent);
        break;
      case 'Enter': case ' ': this.choose(row.span.id); this.#detail.focus(); break;
      default: return;
    }
    event.preventDefault();
    if (to !== undefined) this.choose(shown[Math.min(Math.max(to, 0), shown.length - 1)].span.id);
  }

  #showDetail({ span, parent }) {
    const d = span.detail ?? {};
    const app = this.#app;
    const move = (by) => {
      const shown = this.#order.filter((r) => !r.hidden);
      const to = shown[shown.findIndex((r) => r.span.id === span.id) + by];
      if (to) { this.choose(to.span.id); this.#detail.querySelector(by < 0 ? '.wf-before' : '.wf-after')?.focus(); }
    };
    const scroll = this.#detail.scrollTop;
    const same = this.#detail.dataset.span === span.id;
    this.#detail.dataset.span = span.id;
    this.#detail.hidden = false;
    fill(this.#detail,
      el('div', { class: 'row wf-title', dataset: { lane: span.lane } }, el('span', { class: 'wf-dot', 'aria-hidden': 'true' }), el('h4', { class: 'grow' }, reveal(span.name)), el('span', { class: `chip ${TONE[span.status] ?? ''}` }, STATUS[span.status] ?? span.status),
        el('button', { type: 'button', class: 'icon-btn wf-before', 'aria-label': 'Step back', title: 'Step back', on: { click: () => move(-1) } }, icon('chevron')),
        el('button', { type: 'button', class: 'icon-btn wf-after', 'aria-label': 'Step on', title: 'Step on', on: { click: () => move(1) } }, icon('chevron'))),
      el('p', { class: 'muted small' }, describe(span, parent?.span)),
      facts([
        ['Provider', mono(d.provider)], ['Model', mono(d.model)], ['Tokens', d.usage && `${d.usage.input_tokens ?? 0} in, ${d.usage.output_tokens ?? 0} out${d.usage.cost_micro_usd ? `, ${(d.usage.cost_micro_usd / 1e6).toFixed(4)} USD` : ''}`],
        ['Tools it could call', d.offered], ['Tools considered', d.considered?.candidates.length && `${d.considered.candidates.map((c) => c.tool).join(', ')} (of ${d.considered.of})`], ['Because', d.considered?.reasoning], ['Calls', d.calls], ['Rounds', d.rounds],
        ['Plugin', mono(d.plugin)], ['Point', mono(d.point)], ['Answer', d.verb && verb(d)],
        ['Effect', d.effect], ['Decided', d.rule && [ruleText(d.rule), ' ', el('span', { class: 'mono faint' }, d.rule)]], ['For', mono(d.principal)],
        ['Answered by', d.by && [mono(d.by), d.source ? ` (${d.source})` : '']], ['Outcome', d.outcome], ['Approved for the session', grantText(d.grant)],
        ['Warning', d.warning?.message], ['Reason', d.reason], ['Error', d.error && !d.error.startsWith(`${d.code}:`) && d.code ? `${d.code}: ${d.error}` : d.error],
        ['Runner', mono(d.runner)], ['Attempt', d.attempts], ['Approved by', mono(d.approved_by)],
        ['Waits for', d.depends_on?.length && d.depends_on.join(', ')], ['Safe to repeat', d.idempotent && 'yes, it is idempotent'], ['An earlier attempt', d.uncertain && 'may have run'],
        ['Worked', d.worked_ms && `${duration(d.worked_ms)}, according to the executor`], ['Expires', d.expires_at && exact(d.expires_at)],
        ['Note to the model', d.note], ['Notes', d.notes?.length && el('ul', null, d.notes.map((n) => el('li', null, reveal(n))))],
        ['Text', d.text && el('span', { class: 'wf-text' }, reveal(d.text))], ['Call', mono(d.call)], ['Hash', mono(d.hash)],
        ['In the log', d.commit && `commit ${d.commit}${d.ended && d.ended !== d.commit ? `, ended by ${d.ended}` : ''}`],
        ['Shortened', d.cut?.length && `${d.cut.join(', ')}: too large to show here`],
      ]),
      d.args !== undefined && jsonBlock(d.args, 'Arguments', app), d.result !== undefined && jsonBlock(d.result, 'Result', app));
    this.#detail.scrollTop = same ? scroll : 0;
  }
}

const STATUS = { ok: 'ok', failed: 'failed', denied: 'denied', asked: 'asked a person', cancelled: 'cancelled', skipped: 'skipped', unknown: 'outcome unknown', open: 'running' };
const TONE = { ok: 'chip-ok', failed: 'chip-danger', denied: 'chip-danger', asked: 'chip-warn', cancelled: 'chip-warn', skipped: 'chip-warn', unknown: 'chip-danger', open: 'chip-accent' };
const MARKS = { failed: '✕', denied: '⊘', cancelled: '–', skipped: '–', unknown: '?', asked: '…' };

function mark(status) {
  return MARKS[status] ? el('span', { class: 'wf-status', 'aria-hidden': 'true', title: STATUS[status] }, MARKS[status]) : null;
}

// label describes a row for screen readers.
function label(span) {
  const lane = LANE_LABEL[span.lane] ?? span.lane;
  const begins = `begins after ${duration(span.start_us / 1000)}`;
  const takes = span.duration_us === 0 ? 'a moment' : span.status === 'open' ? `for ${duration(span.duration_us / 1000)} so far` : `takes ${duration(span.duration_us / 1000)}`;
  return `${span.name}, ${lane}, ${begins}, ${takes}, ${STATUS[span.status] ?? span.status}`;
}

// describe describes a span in a sentence.
function describe(span, parent) {
  const from = `It began ${duration(span.start_us / 1000) || '0 ms'} into the turn`;
  const took = span.duration_us === 0 ? '' : span.status === 'open' ? ` and has been running for ${duration(span.duration_us / 1000)}` : ` and took ${duration(span.duration_us / 1000)}`;
  const what = {
    sense: 'The input was perceived, and plugins were asked about it.',
    queue: 'The previous turn had to end first.',
    plan: 'The model was asked what to do next.',
    attempt: 'One attempt at asking the model.',
    step: 'A tool call, from when the model wanted it to its one result.',
    wait: 'It could not continue yet.',
    confirm: 'A person had to decide. No answer in time means no.',
    run: 'A runner executed the call.',
    hook: `A plugin was asked${parent ? ` about ${parent.name}` : ''}.`,
    policy: 'The security layer decided.',
    reflect: 'The turn was reflected on and recorded.',
    end: 'The turn’s one terminal event.',
  }[span.kind] ?? '';
  return `${what} ${from}${took}.`;
}

function legend() {
  return el('ul', { class: 'wf-legend', 'aria-label': 'Colours' }, ['sense', 'plan', 'act', 'confirm', 'hook', 'reflect'].map((lane) => el('li', { dataset: { lane } }, el('span', { class: 'wf-dot', 'aria-hidden': 'true' }), LANE_LABEL[lane])));
}

// nice returns about four round times up to the end.
function nice(end) {
  const raw = end / 4;
  const power = 10 ** Math.floor(Math.log10(Math.max(raw, 1)));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
  const out = [];
  for (let t = 0; t <= end; t += step) out.push(t);
  return out;
}

// evened returns a scale on which a stretch without change counts by the square root of its
// length.
function evened(spans, end) {
  const edges = [...new Set([0, end, ...spans.flatMap((s) => [s.start_us, s.start_us + s.duration_us])])].sort((a, b) => a - b);
  const places = [0];
  for (let i = 1; i < edges.length; i++) places.push(places[i - 1] + Math.sqrt(edges[i] - edges[i - 1]));
  const all = places[places.length - 1] || 1;
  return (us) => {
    let low = 0;
    let high = edges.length - 1;
    while (high - low > 1) {
      const mid = (low + high) >> 1;
      if (edges[mid] <= us) low = mid;
      else high = mid;
    }
    if (us >= edges[high]) return places[high] / all;
    const part = (us - edges[low]) / (edges[high] - edges[low] || 1);
    return (places[low] + part * (places[high] - places[low])) / all;
  };
}
