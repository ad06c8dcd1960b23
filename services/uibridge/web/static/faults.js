// The problems of the whole system, for operators: a button in the page's header that is there
// while there are any, and opens the view of the system.

import { el, fill, icon } from './dom.js';
import { count } from './fmt.js';

const EVERY = 15_000; // ms between two looks

export class Faults {
  #app;
  #list = [];
  #changed = new Set();
  #timer = 0;
  #drawn = '[]';

  constructor(app) {
    this.#app = app;
    this.node = el('button', { class: 'btn btn-small btn-danger faults', type: 'button', hidden: true, on: { click: () => app.panel.show('system') } });
    if (!app.can('see')) return;
    app.on('connection', ({ state }) => state === 'open' && this.refresh());
    document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && this.refresh());
  }

  // onChange calls fn with the problems, now and whenever they change.
  onChange(fn) {
    this.#changed.add(fn);
    fn(this.#list);
  }

  // refresh looks now. While core does not answer, the problems stay: banners show that.
  async refresh() {
    clearTimeout(this.#timer);
    try {
      this.#show((await this.#app.rpc.call('getStatus', {})).faults ?? []);
    } catch (e) {
      console.debug('faults:', e.message);
    } finally {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => document.visibilityState === 'visible' && this.refresh(), EVERY);
    }
  }

  #show(list) {
    const now = JSON.stringify(list);
    if (now === this.#drawn) return;
    const known = new Set(this.#list.map((f) => `${f.what} ${f.agent ?? ''}`));
    for (const f of list) if (!known.has(`${f.what} ${f.agent ?? ''}`)) this.#app.announce(f.message, true);
    [this.#drawn, this.#list] = [now, list];
    this.node.hidden = list.length === 0;
    this.node.title = list.map((f) => f.message).join('\n');
    fill(this.node, icon('warn'), count(list.length, 'problem'));
    for (const fn of this.#changed) fn(list);
  }
}
