// The choice of the language model that answers the session. It is shown if there is one to
// make; choosing sends /provider, as typing it does.

import { el, fill } from './dom.js';

const DEFAULT = 'default'; // as /provider takes it

export class Models {
  #app;
  #select;
  #asked = 0;

  // send sends a text to the session.
  constructor(app, send) {
    this.#app = app;
    this.#select = el('select', {
      class: 'composer-model', 'aria-label': 'Language model of this session', title: 'Language model of this session', hidden: true,
      disabled: !app.can('talk'), on: { change: () => send(`/provider ${this.#select.value}`) },
    });
    this.node = this.#select;
  }

  // load shows the models that are there, and the session's.
  async load() {
    const asked = ++this.#asked;
    const { rpc } = this.#app;
    const [reports, session] = await Promise.allSettled([rpc.call('listProviders', {}), rpc.call('getSession', this.#app.session())]);
    if (asked !== this.#asked || reports.status !== 'fulfilled') return; // without a list there is nothing to choose
    this.#select.title = `Language model of this session. ${search(reports.value)}`;
    const there = new Map(reports.value.flatMap((r) => r.providers).map((p) => [p.name, p]));
    const chosen = session.value?.state?.provider || DEFAULT; // a new session has no state
    const options = [[DEFAULT, 'Agent’s own choice'], ...[...there.values()].map((p) => [p.name, `${p.name}: ${p.model}${p.reachable === false ? ' (not reachable)' : ''}`])];
    if (!options.some(([value]) => value === chosen)) options.push([chosen, chosen]); // with a model, or gone
    fill(this.#select, options.map(([value, label]) => el('option', { value, selected: value === chosen }, label)));
    this.#select.value = chosen;
    this.#select.hidden = there.size < 2 && chosen === DEFAULT;
  }
}

// search says how memories and tools are searched.
function search(reports) {
  const embedder = reports.map((r) => r.embedder).find(Boolean);
  if (!embedder) return 'Searches are lexical: no embedder is configured.';
  return `Embedder: ${embedder.model}${embedder.reachable === false ? ` (not reachable: ${embedder.error})` : ''}.`;
}
