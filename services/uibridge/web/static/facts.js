// The details of an opened row: facts, JSON that can be copied, and the plugins' answers.

import { el, icon } from './dom.js';
import { duration, json } from './fmt.js';
import { highlight } from './code.js';
import { reveal } from './reveal.js';

// facts shows names with their values, and leaves out those without a value. A value is
// a text, a number, or nodes.
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== false);
  return el('dl', { class: 'facts' }, shown.map(([name, value]) => [el('dt', null, name), el('dd', null, typeof value === 'string' ? reveal(value) : value)]));
}

// mono shows a text in the code font.
export function mono(text) {
  return text === undefined || text === '' ? '' : el('span', { class: 'mono' }, reveal(String(text)));
}

const LONGEST = 64_000; // characters of JSON that are shown; all of it can be copied

// jsonBlock shows a value as JSON, with a button that copies it.
export function jsonBlock(value, label, app) {
  const text = json(value);
  const shown = text.length > LONGEST ? `${text.slice(0, LONGEST)}\n… ${text.length - LONGEST} more characters` : text;
  const copy = el('button', {
    type: 'button', class: 'btn btn-small btn-quiet ins-copy', 'aria-label': `Copy ${label}`,
    on: {
      click: async () => {
        try {
          await navigator.clipboard.writeText(text);
          app.announce(`${label} copied`);
          copy.lastChild.textContent = 'Copied';
        } catch {
          app.announce('Copying was not allowed', true);
          copy.lastChild.textContent = 'Not allowed';
        }
        setTimeout(() => { copy.lastChild.textContent = 'Copy'; }, 1500);
      },
    },
  }, icon('copy'), el('span', null, 'Copy'));
  return el('div', { class: 'ins-json' }, el('div', { class: 'ins-json-head' }, el('span', null, label), copy),
    el('pre', { tabindex: 0, role: 'region', 'aria-label': label }, el('code', null, highlight(shown, 'json').map((part) => (typeof part === 'string' ? reveal(part) : part)))));
}

// verdicts shows plugins' answers as a table.
export function verdicts(list) {
  if (!list?.length) return null;
  return el('div', { class: 'ins-scroll', tabindex: 0, role: 'region', 'aria-label': 'Answers of plugins' }, el('table', { class: 'table ins-table' },
    el('caption', { class: 'visually-hidden' }, 'Answers of plugins'),
    el('thead', null, el('tr', null, ['Plugin', 'Point', 'Answer', 'Took', 'Why'].map((h) => el('th', { scope: 'col', class: h === 'Took' ? 'num' : null }, h)))),
    el('tbody', null, list.map((v) => el('tr', null,
      el('th', { scope: 'row' }, reveal(v.plugin)), el('td', { class: 'mono' }, v.point), el('td', null, verb(v)),
      el('td', { class: 'num' }, duration((v.latency_us ?? 0) / 1000)), el('td', null, reveal(v.error ? `${v.error}` : v.reason ?? '')))))));
}

// verb shows a plugin's answer as a chip.
export function verb(v) {
  const tone = v.verb === 'deny' ? 'chip-danger' : v.error || v.verb === 'confirm' ? 'chip-warn' : '';
  return el('span', { class: `chip ${tone}` }, v.error ? `${v.verb} (failed)` : v.verb);
}

// field returns a control with its label.
export function field(label, control) {
  return el('label', { class: 'ins-field' }, el('span', { class: 'visually-hidden' }, label), control);
}

// failure shows that loading failed, with a button to try again.
export function failure(error, again) {
  return el('div', { class: 'empty', role: 'alert' }, el('h3', null, 'Loading failed'), el('p', null, reveal(error.message)),
    el('p', null, el('button', { type: 'button', class: 'btn', on: { click: again } }, 'Try again')));
}

// old shows that loading failed, above what was loaded before.
export function old(error) {
  return el('p', { class: 'note note-warn', role: 'status' }, icon('warn'), el('span', null, reveal(`This may be outdated: ${error.message}`)));
}

// every calls fn while the view is shown: at once when it appears, and then every ms
// milliseconds, one call at a time. It returns a function that calls it now.
export function every(root, ms, fn) {
  let timer = 0;
  let shown = false;
  let running = null;
  const run = () => {
    clearTimeout(timer);
    running ??= Promise.resolve().then(fn).catch((e) => console.error(e)).finally(() => {
      running = null;
      clearTimeout(timer);
      if (shown) timer = setTimeout(() => (document.visibilityState === 'visible' ? run() : again()), ms);
    });
    return running;
  };
  const again = () => { timer = setTimeout(() => (document.visibilityState === 'visible' ? run() : again()), ms); };
  root.addEventListener('show', () => { shown = true; run(); });
  root.addEventListener('hide', () => { shown = false; clearTimeout(timer); });
  return run;
}
