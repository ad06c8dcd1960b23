// The tools with their statistics, the executors that run them, and the plugins with
// their hooks. Reloaded every few seconds while visible.

import { el, fill, icon } from './dom.js';
import { ago, count, duration, exact } from './fmt.js';
import { every, facts, failure, field, mono, old } from './facts.js';
import { PluginCard } from './plugin.js';
import { recall, remember } from './store.js';
import { reveal } from './reveal.js';
import { brief } from './describe.js';

const REFRESH = 5000; // ms

const ORDERS = {
  name: ['By name', (a, b) => a.name.localeCompare(b.name)],
  used: ['Most used', (a, b) => b.used - a.used || a.name.localeCompare(b.name)],
  worst: ['Least successful', (a, b) => a.success_rate - b.success_rate || b.used - a.used],
  slow: ['Slowest', (a, b) => b.mean_latency_ms - a.mean_latency_ms || a.name.localeCompare(b.name)],
};

// mountTools puts the tools, and where they run, into root, an empty tab panel.
export function mountTools(root, app) {
  let tools = null;
  let status = null;
  let text = '';
  let order = recall('tools.order', 'name');
  if (!ORDERS[order]) order = 'name';
  const open = new Set();
  const list = el('ul', { class: 'cards', 'aria-label': 'Tools' });
  const system = el('div');
  const note = el('div');
  const said = el('p', { class: 'muted small' });

  const draw = () => {
    const all = [...tools].sort(ORDERS[order][1]);
    const shown = all.filter((t) => !text || `${t.name} ${t.description ?? ''} ${t.plugin ?? ''} ${(t.permissions ?? []).join(' ')} ${t.risk ?? ''}`.toLowerCase().includes(text));
    const slowest = Math.max(1, ...tools.map((t) => t.mean_latency_ms ?? 0));
    const most = Math.max(1, ...tools.map((t) => t.used ?? 0));
    const live = tools.filter((t) => t.live).length;
    said.textContent = `${count(live, 'tool')} live, ${tools.length - live} seen earlier.`;
    keepFocus(list, () => fill(list, shown.map((t) => toolCard(t, { slowest, most, open })),
      shown.length === 0 && el('li', { class: 'empty' }, tools.length ? 'No tool matches the filter.' : 'No tools: no runner has announced one.')));
  };
  const refresh = every(root, REFRESH, async () => {
    try {
      [tools, status] = await Promise.all([app.rpc.call('listTools', {}), app.rpc.call('getStatus', {})]);
    } catch (e) {
      if (!tools) fill(note, failure(e, refresh));
      else fill(note, old(e));
      return;
    }
    note.replaceChildren();
    draw();
    keepFocus(system, () => fill(system, executors(status, open)));
  });

  const search = el('input', { type: 'search', class: 'input', placeholder: 'Filter tools…', autocomplete: 'off', spellcheck: 'false', on: { input: () => { text = search.value.trim().toLowerCase(); if (tools) draw(); } } });
  const sort = el('select', { class: 'input', on: { change: () => { order = sort.value; remember('tools.order', order); if (tools) draw(); } } },
    Object.entries(ORDERS).map(([name, [label]]) => el('option', { value: name, selected: name === order }, label)));
  root.classList.add('ins', 'ins-tools');
  root.append(
    el('div', { class: 'ins-head' }, el('div', { class: 'row' }, field('Filter tools', search), el('div', { class: 'ins-sort' }, field('Order', sort))), said),
    note, list, system);
}

function toolCard(t, { slowest, most, open }) {
  const used = t.used ?? 0;
  const rate = used ? (t.succeeded ?? 0) / used : 0;
  const more = el('details', { class: 'fold', open: open.has(t.name), on: { toggle: (e) => (e.target.open ? open.add(t.name) : open.delete(t.name)) } },
    el('summary', { dataset: { keep: `tool ${t.name}` } }, icon('chevron'), el('span', null, 'Details'), el('span', { class: 'visually-hidden' }, ` of ${t.name}`)),
    facts([
      ['Offered by', t.plugin ? [mono(t.plugin), ' (a plugin)'] : 'built in'],
      ['Needs', t.permissions?.length && el('span', { class: 'chips' }, t.permissions.map((p) => el('span', { class: 'chip mono' }, p)))],
      ['Safe to repeat', t.idempotent ? 'yes: it is retried if it is unknown whether it ran' : 'no: its effect happens at most once per call'],
      ['Made for', t.scenario_tags?.length && t.scenario_tags.join(', ').replaceAll('_', ' ')],
      ['May take', t.timeout_ms ? duration(t.timeout_ms) : ''],
      ['Slots', t.pool && mono(t.pool)],
      ['Unknown', t.unknown > 0 && `${t.unknown}: it is unknown whether they ran`],
      ['Arguments', t.args && el('span', { class: 'chips' }, args(t.args))],
    ]));
  return el('li', { class: 'card tool-card', dataset: { live: String(Boolean(t.live)) } },
    el('div', { class: 'row' }, el('h3', { class: 'mono clip', title: t.name }, reveal(t.name)), el('span', { class: 'grow' }),
      t.risk && t.risk !== 'low' ? el('span', { class: `chip ${t.risk === 'high' ? 'chip-danger' : 'chip-warn'}`, title: t.risk === 'high' ? 'Irreversible, or it leaves the machine: requires approval' : 'It changes things in the agent’s own workspace' }, `${t.risk} risk`) : null,
      el('span', { class: `chip ${t.live ? 'chip-ok' : ''}`, title: t.live ? 'An executor offers it now' : 'No executor offers it now' }, el('span', { class: 'dot', 'aria-hidden': 'true' }), t.live ? 'live' : 'away')),
    t.description && el('p', { class: 'muted small' }, reveal(t.description)),
    el('dl', { class: 'meters tool-meters' },
      meter('Success', rate, used ? `${t.succeeded} of ${used}` : 'not used', used === 0 ? 'idle' : rate >= 0.75 ? 'ok' : rate >= 0.4 ? 'warn' : 'bad'),
      meter('Used', used / most, used ? `${used}×` : 'never', 'plain'),
      meter('Mean time', (t.mean_latency_ms ?? 0) / slowest, used ? (t.mean_latency_ms ? duration(t.mean_latency_ms) : '< 1 ms') : '–', 'plain')),
    more);
}

// meter shows a number with a bar, which adds no information.
function meter(name, part, text, tone) {
  return el('div', { class: 'meter' }, el('dt', null, name), el('dd', { class: 'num' }, text),
    el('span', { class: 'meter-bar', dataset: { tone }, 'aria-hidden': 'true' }, el('span', { style: { '--part': `${Math.round(Math.min(Math.max(part, 0), 1) * 100)}%` } })));
}

function args(schema) {
  const required = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {}).map(([name, s]) => el('span', { class: 'chip mono', title: typeof s?.description === 'string' ? s.description : null }, `${name}${required.has(name) ? '' : '?'}: ${Array.isArray(s?.type) ? s.type.join('|') : s?.type ?? 'any'}`));
}

// executors shows the processes that ask models and run tools, as one core knows them.
function executors(status, open) {
  const list = [...(status.executors ?? [])].sort((a, b) => a.service.localeCompare(b.service) || a.instance.localeCompare(b.instance));
  return el('section', { class: 'system', 'aria-labelledby': 'system-title' },
    el('h2', { id: 'system-title' }, 'Where it runs'),
    el('p', { class: 'muted small' }, `Core ${status.version || '(no version)'}, instance `, mono(status.instance), `, ${count(status.open_sessions ?? 0, 'open session')}, agents ${(status.agents ?? []).join(', ') || 'none'}.`),
    list.length === 0 && el('p', { class: 'note note-warn' }, icon('warn'), el('span', null, 'No executor is running: models cannot be asked and tools cannot run.')),
    el('ul', { class: 'cards' }, list.map((x) => el('li', { class: 'card' },
      el('div', { class: 'row' }, el('h3', { class: 'clip' }, reveal(x.service)), el('span', { class: 'chip' }, x.kind), el('span', { class: 'grow' }),
        x.draining && el('span', { class: 'chip chip-warn' }, 'draining'), el('span', { class: 'faint tiny', title: exact(x.started) }, `up ${ago(x.started) === 'now' ? 'just now' : ago(x.started)}`)),
      el('p', { class: 'muted tiny mono clip', title: x.instance }, `${x.instance}${x.host ? ` on ${x.host}` : ''}`),
      el('dl', { class: 'meters' }, (x.pools ?? []).map((p) => meter(`Pool ${p.name}`, p.slots ? p.busy / p.slots : 0, `${p.busy} of ${p.slots} busy`, p.slots && p.busy >= p.slots ? 'warn' : 'plain'))),
      x.providers?.length ? el('p', { class: 'small' }, x.providers.map((p, i) => [i > 0 && ', ', el('strong', null, reveal(p.name)), p.model && [' ', mono(p.model)], p.note && el('span', { class: 'muted' }, ` ${p.note}`)])) : null,
      x.tools?.length ? el('p', { class: 'muted small' }, `${count(x.tools.length, 'tool')}`) : null))),
    el('details', { class: 'fold', open: open.has('//counters'), on: { toggle: (e) => (e.target.open ? open.add('//counters') : open.delete('//counters')) } },
      el('summary', { dataset: { keep: 'counters' } }, icon('chevron'), 'What this core has done since it started'),
      facts(Object.entries(status.counters ?? {}).sort().map(([name, n]) => [name.replaceAll('_', ' '), String(n)]))));
}

// mountPlugins puts the plugins into root, an empty tab panel.
export function mountPlugins(root, app) {
  const cards = new Map();
  const list = el('ul', { class: 'cards', 'aria-label': 'Plugins, in the order in which they are asked' });
  const note = el('div');
  const said = el('p', { class: 'muted small' });
  const empty = el('div', { class: 'empty', hidden: true }, el('h3', null, 'No plugin is registered'),
    el('p', null, 'A plugin is any process that subscribes on the bus: hooks that influence what the agent does, tools, providers, listeners. ', el('code', null, 'skandha plugins new'), ' writes a working example.'));
  const goneList = el('ul', { class: 'cards', 'aria-label': 'Plugins that have stopped' });
  const goneFold = el('details', { class: 'fold plugins-gone', hidden: true }, el('summary', null, icon('chevron'), el('span')), goneList);
  let read = false;
  const refresh = every(root, REFRESH, async () => {
    let plugins;
    let hooks;
    try {
      [plugins, hooks] = await Promise.all([app.rpc.call('listPlugins', {}), app.rpc.call('getHooks', {})]);
    } catch (e) {
      fill(note, read ? old(e) : failure(e, refresh));
      return;
    }
    read = true;
    note.replaceChildren();
    const gone = plugins.filter((p) => p.state === 'gone').length;
    empty.hidden = plugins.length > gone;
    said.textContent = plugins.length > gone ? `In the order in which they are asked. Latencies are what ${brief(hooks.instance)} saw since it started.` : '';
    for (const [name, card] of cards) if (!plugins.some((p) => p.name === name)) { card.node.remove(); cards.delete(name); }
    plugins.forEach((p, i) => {
      let card = cards.get(p.name);
      if (!card) cards.set(p.name, card = new PluginCard(app, () => refresh()));
      card.show(p, hooksOf(hooks, p.name));
      const into = p.state === 'gone' ? goneList : list; // stopped plugins come last
      const at = p.state === 'gone' ? i - (plugins.length - gone) : i;
      if (into.children[at] !== card.node) into.insertBefore(card.node, into.children[at] ?? null);
    });
    goneFold.hidden = gone === 0;
    goneFold.querySelector('summary > span').textContent = `${count(gone, 'plugin')} gone`;
  });
  root.classList.add('ins', 'ins-plugins');
  root.append(el('div', { class: 'ins-head' }, said), note, empty, list, goneFold);
}

function hooksOf(hooks, plugin) {
  return (hooks.points ?? []).flatMap((at) => (at.plugins ?? []).filter((h) => h.plugin === plugin).map((h) => ({ ...h, point: at.point })));
}

// keepFocus draws, and restores the focus to the element with the same data-keep.
function keepFocus(node, draw) {
  const key = node.contains(document.activeElement) ? document.activeElement.dataset.keep : '';
  draw();
  if (key) [...node.querySelectorAll('[data-keep]')].find((n) => n.dataset.keep === key)?.focus({ preventScroll: true });
}
