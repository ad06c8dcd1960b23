// Why a tool was called: the tools that core considered, with the factors of their scores.
// Folded, below the arguments of a call.

import { el } from './dom.js';
import { reveal } from './reveal.js';

const FACTORS = [['fit', 'Fit'], ['success', 'Success'], ['latency', 'Speed'], ['risk', 'Safety'], ['preference', 'Preference']];
const METHODS = { lexical: 'by their words', semantic: 'by their meaning', hybrid: 'by words and meaning' };
const BY = { rules: 'without a model', model: 'with a model' };

// why returns the disclosure for a call of a tool. p are the parameters of onPlanConsidered.
export function why(tool, p) {
  return el('details', { class: 'call-why' }, el('summary', { class: 'small' }, 'Why this tool?'), el('p', { class: 'small' }, lead(p), p.reasoning && [' ', reveal(p.reasoning), '.']), p.candidates.length > 0 && table(tool, p.candidates));
}

// explains reports whether p is about a tool.
export function explains(p, tool) {
  return p.candidates.some((c) => c.tool === tool) || (p.selection?.tools ?? []).includes(tool);
}

function lead({ selection, method, offered, of: all, call }) {
  const how = method ? `, compared ${METHODS[method] ?? method}` : '';
  if (selection) return `Skandha chose it ${BY[selection.by] ?? ''}, ${percent(selection.confidence)} certain${how}.`;
  if (call) return `The model looked for tools, and this was found${how}.`;
  return `The model chose it. It was shown ${offered} of ${all} tools${how}.`;
}

function table(tool, candidates) {
  const cell = (value) => el('td', { class: 'num' }, percent(value));
  return el('div', { class: 'why-scroll', tabindex: 0, role: 'group', 'aria-label': 'Tools that were considered' },
    el('table', { class: 'why-table small' },
      el('thead', null, el('tr', null, el('th', { scope: 'col' }, 'Tool'), el('th', { scope: 'col' }, 'Score'), FACTORS.map(([, name]) => el('th', { scope: 'col' }, name)))),
      el('tbody', null, candidates.map((c) => el('tr', { class: c.tool === tool ? 'why-this' : '', title: c.why || null },
        el('th', { scope: 'row', class: 'mono' }, reveal(c.tool), c.tool === tool && el('span', { class: 'visually-hidden' }, ' (this one)')), cell(c.score), FACTORS.map(([key]) => cell(c[key])))))));
}

function percent(share) { return `${Math.round(Number(share) * 100)} %`; }
