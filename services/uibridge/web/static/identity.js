// Somebody from outside who may connect to the bus: what it may do, whether it is connected, and for those who may
// administer how to end that. Revoking needs a second click.

import { el, fill } from './dom.js';
import { ago, exact } from './fmt.js';
import { Question } from './question.js';
import { reveal } from './reveal.js';

const STATES = {
  active: ['chip-ok', 'active', 'It may connect'],
  expired: ['chip-warn', 'expired', 'Its credentials have expired'],
  revoked: ['', 'revoked', 'Its credentials were ended'],
};

// IdentityCard shows an identity; it calls changed after it was revoked.
export class IdentityCard {
  #app; #changed;
  #head; #about; #actions; #question = new Question();
  #drawn = '';
  #name = '';

  constructor(app, changed) {
    this.#app = app;
    this.#changed = changed;
    this.#head = el('div', { class: 'row' });
    this.#about = el('div', { class: 'plugin-about' });
    this.#actions = el('div', { class: 'row' });
    this.node = el('li', { class: 'card identity-card' }, this.#head, this.#about, this.#actions, this.#question.node);
  }

  // show draws the identity. It does not change a question in progress, unless that is no longer possible.
  show(id) {
    const now = JSON.stringify([id, id.seen && ago(id.seen)]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    this.#name = id.charter.name;
    this.node.dataset.state = id.state;
    const [tone, label, title] = STATES[id.state] ?? ['', id.state, ''];
    fill(this.#head, el('h3', { class: 'mono clip', title: this.#name }, reveal(this.#name)), el('span', { class: 'grow' }),
      id.muted && el('span', { class: 'chip chip-warn', title: 'It has sent inputs faster than they are answered: the bus takes none from it for a while' }, 'muted'),
      id.connected > 0 && el('span', { class: 'chip chip-accent' }, 'connected'),
      el('span', { class: `chip ${tone}`, title }, el('span', { class: 'dot', 'aria-hidden': 'true' }), label));
    const grants = may(id.charter);
    fill(this.#about,
      el('p', { class: 'small' }, el('span', { class: 'muted' }, 'May '),
        grants.length ? el('span', { class: 'chips' }, grants.map((g) => el('span', { class: 'chip mono' }, reveal(g)))) : 'register, and nothing else'),
      el('p', { class: 'muted small' }, 'Invited by ', reveal(id.by), ' ', when(id.invited), '. ',
        id.charter.expires && id.state === 'active' && ['Until ', el('time', { datetime: id.charter.expires }, exact(id.charter.expires)), '. '],
        id.ended && ['Revoked ', when(id.ended), '. '],
        !id.connected && (id.seen ? ['Last connected ', when(id.seen), '.'] : 'Not seen since core was started.')));
    const can = this.#app.can('administer') && id.state !== 'revoked';
    const focused = this.#actions.contains(document.activeElement);
    fill(this.#actions, can && el('button', { type: 'button', class: 'btn btn-small btn-quiet', 'aria-label': `Revoke ${this.#name}…`, on: { click: () => this.#confirm() } }, 'Revoke…'));
    this.#actions.hidden = !can;
    if (focused) this.#back();
    if (!can) this.#question.close();
  }

  #back() { this.#actions.querySelector('button')?.focus(); }

  #confirm() {
    this.#question.ask({
      op: 'revoke', label: `Revoke ${this.#name}`, sure: 'Revoke it', tone: 'btn-danger', back: () => this.#back(),
      text: 'Its connections are closed at once, and it cannot connect again unless it is invited again.',
      run: () => this.#app.rpc.call('revokeIdentity', { identity: this.#name }),
      done: async () => {
        this.#app.announce(`${this.#name} was revoked`);
        await this.#changed();
      },
    });
  }
}

function when(at) { return el('time', { datetime: at, title: exact(at) }, ago(at) === 'now' ? 'just now' : ago(at)); }

// may lists what a charter grants, as the flags of skandha plugins invite.
function may(charter) {
  const list = (flag, values) => (values?.length ? [`${flag} ${values.join(',')}`] : []);
  return [
    ...list('hooks', charter.hooks), ...list('tools', charter.tools), ...list('providers', charter.providers),
    ...list('listener', charter.listeners), ...list('agent', charter.agents),
    ...list('session', charter.listeners?.length && !charter.sessions?.length ? ['*'] : charter.sessions),
    ...['storage', 'guides', 'see', 'order'].filter((flag) => charter[flag]),
  ];
}
