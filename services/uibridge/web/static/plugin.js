// A plugin: its description, its hooks' statistics and, with the right "administer",
// its operations. Every operation needs a second click.

import { el, fill, icon } from './dom.js';
import { ago, count, duration, exact } from './fmt.js';
import { facts, mono } from './facts.js';
import { Question } from './question.js';
import { reveal } from './reveal.js';

const STATES = {
  active: ['chip-ok', 'active', 'It is asked'],
  waiting: ['chip-warn', 'waiting', 'It is not asked yet'],
  suspended: ['chip-danger', 'suspended', 'It is no longer asked'],
  draining: ['chip-warn', 'draining', 'It gets no new calls'],
  gone: ['', 'gone', 'No instance is running'],
};

const OPS = {
  suspend: { label: 'Suspend', class: 'btn-danger', ask: (n) => `Suspend ${n}? It is no longer asked, even if it registers again, until it is resumed. If it decides policy, calls that it would have allowed may be denied.`, done: (n) => `${n} is suspended` },
  resume: { label: 'Resume', class: 'btn-primary', ask: (n) => `Resume ${n}? It is asked again from the next decision.`, done: (n) => `${n} is asked again` },
  unload: { label: 'Unload', class: 'btn-danger', ask: (n) => `Unload ${n}? Its instances finish their work and are not admitted again; new ones are.`, done: (n) => `${n} is unloaded` },
};

// PluginCard shows one plugin; it calls changed after an operation.
export class PluginCard {
  #app;
  #changed;
  #head; #about; #actions; #more; #fold;
  #question = new Question();
  #drawn = '';
  #name = '';

  constructor(app, changed) {
    this.#app = app;
    this.#changed = changed;
    this.#head = el('div', { class: 'row' });
    this.#about = el('div', { class: 'plugin-about' });
    this.#actions = el('div', { class: 'row plugin-actions' });
    this.#more = el('div');
    this.#fold = el('details', { class: 'fold' }, el('summary', null, icon('chevron'), el('span')), this.#more);
    this.node = el('li', { class: 'card plugin-card' }, this.#head, this.#about, this.#fold, this.#actions, this.#question.node);
  }

  // show draws the plugin as core knows it, with its hooks' statistics. It does not
  // change a confirmation in progress.
  show(p, hooks) {
    const now = JSON.stringify([p, hooks]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    this.#name = p.name;
    const [tone, label, title] = STATES[p.state] ?? ['', p.state, ''];
    fill(this.#head, el('h3', { class: 'mono clip', title: p.name }, reveal(p.name)), el('span', { class: 'faint small num' }, p.version), el('span', { class: 'grow' }), el('span', { class: `chip ${tone}`, title }, el('span', { class: 'dot', 'aria-hidden': 'true' }), label));
    fill(this.#about,
      p.description && el('p', { class: 'muted small' }, reveal(p.description)),
      p.reason && el('p', { class: `note ${p.state === 'suspended' ? 'note-danger' : 'note-warn'}` }, icon('info'), el('span', null, p.suspended ? suspension(p.suspended) : reveal(p.reason))),
      hooks.length ? hookTable(hooks, p.state === 'suspended') : null,
      p.tools?.length ? el('p', { class: 'small' }, el('span', { class: 'muted' }, 'Tools '), el('span', { class: 'chips' }, p.tools.map((t) => el('span', { class: 'chip mono', title: t.description }, reveal(t.name))))) : null);
    this.#fold.querySelector('summary > span').textContent = `${count(p.instances.length, 'instance')} and more`;
    fill(this.#more, this.#details(p));
    this.#offer(p);
  }

  #details(p) {
    const names = (list) => list?.length && list.map((x) => x.name ?? x).join(', ');
    return facts([
      ['Instances', p.instances.length > 0 && el('ul', null, p.instances.map((i) => el('li', null, mono(i.instance), el('span', { class: 'muted', title: exact(i.since) }, ` since ${ago(i.since) === 'now' ? 'just now' : ago(i.since)}${i.draining ? ', draining' : ''}${i.reason ? `: ${i.reason}` : ''}`))))],
      ['Registered', exact(p.registered)], ['Priority', p.priority], ['Needs', names(p.dependencies)], ['Runs after', names(p.run_after)], ['Runs before', names(p.run_before)],
      ['Why this place', p.why?.length && el('ul', null, p.why.map((w) => el('li', null, reveal(w))))],
      ['Providers', p.providers?.length && p.providers.map((x) => `${x.name} ${x.model}`).join(', ')], ['Storage', p.storage && mono(JSON.stringify(p.storage))],
      ['Listens', names(p.listeners)], ['Sensors', names(p.sensors)], ['Guides', names(p.guides)], ['Manifest', mono(p.hash)],
    ]);
  }

  #offer(p) {
    const ops = !this.#app.can('administer') ? [] : p.suspended || p.state === 'suspended' ? ['resume', 'unload'] : p.state === 'gone' ? [] : ['suspend', 'unload'];
    const focused = this.#actions.contains(document.activeElement) ? document.activeElement.dataset.op : '';
    fill(this.#actions, ops.map((op) => el('button', {
      type: 'button', class: `btn btn-small ${op === 'resume' ? '' : 'btn-quiet'}`, dataset: { op }, 'aria-label': `${OPS[op].label} ${p.name}…`, on: { click: () => this.#confirm(op) },
    }, `${OPS[op].label}…`)));
    this.#actions.hidden = ops.length === 0;
    if (focused) this.#actions.querySelector(`[data-op="${focused}"]`)?.focus();
    if (this.#question.op && !ops.includes(this.#question.op)) this.#question.close();
  }

  #confirm(op) {
    const o = OPS[op];
    const field = op === 'resume' ? null : el('input', { class: 'input', type: 'text', maxlength: 300, placeholder: 'Reason (visible to others)', 'aria-label': 'Reason' });
    const act = (force) => this.#app.rpc.call('pluginAction', { op, plugin: this.#name, ...(force && { force }), ...(field?.value.trim() && { reason: field.value.trim() }) });
    this.#question.ask({
      op, label: `${o.label} ${this.#name}`, sure: `${o.label} ${this.#name}`, tone: o.class, text: o.ask(this.#name), field, run: () => act(false),
      again: (e) => op === 'unload' && e.code === 'conflict' && { sure: `${o.label} it anyway`, text: 'Other plugins depend on it; they will wait.', run: () => act(true) },
      back: () => this.#actions.querySelector(`[data-op="${op}"]`)?.focus(),
      done: async () => {
        this.#app.announce(o.done(this.#name));
        this.#drawn = '';
        await this.#changed();
        (this.#actions.querySelector('button') ?? this.#fold.querySelector('summary')).focus();
      },
    });
  }
}

// suspension shows who suspended it, why and when. An operator of this page is named in
// the reason.
function suspension(s) {
  const m = /^by (ui-[\w-]+)(?:: (.*))?$/s.exec(s.reason ?? '');
  const [who, why] = m ? [m[1], m[2]] : [s.by, s.reason];
  return ['Suspended by ', reveal(who), ' ', el('time', { datetime: s.at, title: exact(s.at) }, ago(s.at) === 'now' ? 'just now' : `${ago(s.at)} ago`), why ? [': ', reveal(why)] : ''];
}

// hookTable shows the plugin's statistics at each point. The reason why a suspended plugin
// is not asked is already shown above it.
function hookTable(hooks, suspended) {
  const slow = Math.max(1, ...hooks.map((h) => h.p99_us));
  return el('div', { class: 'ins-scroll', tabindex: 0, role: 'region', 'aria-label': 'Hooks' }, el('table', { class: 'table ins-table' },
    el('caption', { class: 'visually-hidden' }, 'Hooks: how often it was asked, and how long its answers took'),
    el('thead', null, el('tr', null, el('th', { scope: 'col' }, 'Hook'), el('th', { scope: 'col', class: 'num' }, 'Asked'), el('th', { scope: 'col', class: 'num' }, 'Failed'), el('th', { scope: 'col', class: 'num', title: 'Half of the answers came within' }, 'p50'), el('th', { scope: 'col', class: 'num', title: '99 of 100 answers came within' }, 'p99'))),
    el('tbody', null, hooks.map((h) => [
      el('tr', null,
        el('th', { scope: 'row', class: 'mono', title: `${h.mode}, within ${duration(h.deadline_ms)}; if it fails: ${h.on_error}` }, h.point),
        el('td', { class: 'num' }, h.asked), el('td', { class: `num ${h.failed ? 'bad' : ''}` }, h.failed),
        el('td', { class: 'num' }, h.asked ? duration(h.p50_us / 1000) : '–'),
        el('td', { class: 'num lat' }, h.asked ? [duration(h.p99_us / 1000), el('span', { class: 'lat-bar', 'aria-hidden': 'true', style: { '--part': `${Math.round((h.p99_us / slow) * 100)}%` } })] : '–')),
      ((h.unasked && !suspended) || h.last_error) && el('tr', { class: 'why' }, el('td', { colspan: 5 }, h.unasked && !suspended ? reveal(`Not asked: ${h.unasked}`) : reveal(`Last failure: ${h.last_error}`))),
    ]))));
}
