// The panel beside the conversation, with its tabs. The events tab listens from the
// start; the others are loaded when first shown.

import { el, iconButton } from './dom.js';
import { recall, remember } from './store.js';

const TABS = [
  ['events', 'Events', async () => (await import('./events.js')).mount],
  ['timeline', 'Timeline', async () => (await import('./timeline.js')).mount],
  ['tools', 'Tools', async () => (await import('./insight.js')).mountTools],
  ['plugins', 'Plugins', async () => (await import('./insight.js')).mountPlugins],
  ['memory', 'Memory', async () => (await import('./memory.js')).mount],
  ['system', 'System', async () => (await import('./system.js')).mount],
  ['audit', 'Audit', async () => (await import('./audit.js')).mount, 'administer'],
];

export class Panel {
  #root;
  #app;
  #tabs = new Map();
  #open = '';

  constructor(root, app) {
    this.#root = root;
    this.#app = app;
    const list = el('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Views', on: { keydown: (e) => this.#keys(e) } });
    const body = el('div', { class: 'panel-body' });
    for (const [name, label, load, right] of TABS) {
      if (right && !app.can(right)) continue;
      const tab = el('button', { class: 'tab', type: 'button', role: 'tab', id: `tab-${name}`, 'aria-controls': `panel-${name}`, 'aria-selected': 'false', tabindex: -1, on: { click: () => this.show(name) } }, label);
      const view = el('div', { role: 'tabpanel', id: `panel-${name}`, 'aria-labelledby': `tab-${name}`, tabindex: 0, hidden: true });
      this.#tabs.set(name, { tab, view, load, mounted: null });
      list.append(tab);
      body.append(view);
    }
    root.append(this.#splitter(), el('div', { class: 'panel-head' }, list, iconButton('close', 'Close the panel', () => this.hide())), body);
    root.addEventListener('dismiss', () => this.hide());
    this.#mount('events');
    const was = recall('panel', '');
    if (was && this.#tabs.has(was) && !app.shell.isOverlay) this.show(was);
  }

  // isOpen reports whether the panel is open.
  get isOpen() { return this.#open !== ''; }

  // show opens a tab: events, timeline, tools, plugins, memory, system or audit.
  show(name) {
    const next = this.#tabs.get(name);
    if (!next) throw new Error(`panel: unknown tab ${name}`);
    if (name === this.#open) return;
    const before = this.#tabs.get(this.#open);
    if (before) this.#select(before, false);
    this.#open = name;
    remember('panel', name);
    this.#app.shell.showPanel(true);
    this.#select(next, true);
    this.#mount(name);
    this.#changed();
  }

  // hide closes the panel.
  hide() {
    const before = this.#tabs.get(this.#open);
    if (!before) return;
    this.#select(before, false);
    this.last = this.#open;
    this.#open = '';
    remember('panel', undefined);
    this.#app.shell.showPanel(false);
    this.#changed();
  }

  // toggle opens the panel at its last tab, or closes it.
  toggle() {
    if (this.isOpen) this.hide();
    else this.show(this.last ?? 'events');
  }

  // onChange is called when the panel opens or closes.
  onChange = () => {};

  #changed() { this.onChange(this.isOpen); }

  #select({ tab, view }, on) {
    tab.setAttribute('aria-selected', String(on));
    tab.tabIndex = on ? 0 : -1;
    view.hidden = !on;
    if (on) tab.scrollIntoView({ block: 'nearest', inline: 'nearest' }); // not all tabs fit on a phone
    view.dispatchEvent(new Event(on ? 'show' : 'hide'));
  }

  async #mount(name) {
    const t = this.#tabs.get(name);
    if (t.mounted) return;
    t.mounted = t.load().then((mount) => {
      mount(t.view, this.#app);
      if (name === this.#open) t.view.dispatchEvent(new Event('show'));
    });
    try {
      await t.mounted;
    } catch (e) {
      t.mounted = null; // showing it again retries
      console.error(`panel: ${name}:`, e);
      t.view.replaceChildren(el('div', { class: 'empty', role: 'alert' }, el('h3', null, 'This view could not be opened'), el('p', null, e.message)));
    }
  }

  #keys(event) {
    const names = [...this.#tabs.keys()];
    const at = names.indexOf(this.#open);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const name = names[(to + names.length) % names.length];
    this.show(name);
    this.#tabs.get(name).tab.focus();
  }

  #splitter() {
    const shell = this.#app.shell;
    const say = (px) => bar.setAttribute('aria-valuenow', String(px));
    const bar = el('div', {
      class: 'splitter', role: 'separator', tabindex: 0, 'aria-orientation': 'vertical', 'aria-label': 'Width of the panel',
      'aria-valuemin': 300, 'aria-valuemax': 1200, 'aria-valuenow': 440,
      on: {
        pointerdown: (down) => {
          down.preventDefault();
          bar.setPointerCapture(down.pointerId);
          bar.classList.add('dragged');
          const move = (e) => say(shell.setPanelWidth(innerWidth - e.clientX));
          const up = () => { bar.classList.remove('dragged'); bar.removeEventListener('pointermove', move); };
          bar.addEventListener('pointermove', move);
          bar.addEventListener('lostpointercapture', up, { once: true });
        },
        focus: () => say(Math.round(this.#root.getBoundingClientRect().width)),
        keydown: (e) => {
          const by = { ArrowLeft: 24, ArrowRight: -24 }[e.key];
          if (!by) return;
          e.preventDefault();
          say(shell.setPanelWidth(this.#root.getBoundingClientRect().width + by));
        },
      },
    });
    return bar;
  }
}
