// One listener in one process: its state and, for a camera or microphone, a light that shows what is
// known about whether it records, and a switch for those with the right "administer".

import { el, fill, icon } from './dom.js';
import { ago, exact } from './fmt.js';
import { reveal } from './reveal.js';
import { refusal } from './words.js';

const LIGHTS = { recording: 'chip-danger light-on', not_recording: '', unconfirmed: 'chip-warn', unknown: 'chip-warn' };
const TONES = { ok: 'chip-ok', degraded: 'chip-warn', down: 'chip-danger' };

// ListenerCard shows a listener; it calls changed after it was switched.
export class ListenerCard {
  #app; #changed;
  #head; #about; #media; #light; #toggle; #said; #note;
  #drawn = '';
  #shown = null;

  constructor(app, changed) {
    this.#app = app;
    this.#changed = changed;
    this.#head = el('div', { class: 'row' });
    this.#about = el('div', { class: 'plugin-about' });
    this.#light = el('span', { class: 'chip' });
    this.#said = el('p', { class: 'muted small' });
    this.#toggle = el('button', { type: 'button', class: 'switch', role: 'switch', 'aria-checked': 'false', on: { click: () => this.#turn() } });
    this.#media = el('div', { class: 'listener-media', hidden: true },
      el('div', { class: 'row' }, this.#light, el('span', { class: 'grow' }), app.can('administer') && this.#toggle), this.#said);
    this.#note = el('div');
    this.node = el('li', { class: 'card listener-card' }, this.#head, this.#about, this.#media, this.#note);
  }

  show(l) {
    const now = JSON.stringify([l, ago(l.since)]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    this.#shown = l;
    this.node.dataset.state = l.state;
    fill(this.#head, el('h3', { class: 'mono clip', title: l.listener }, reveal(l.listener)), el('span', { class: 'chip' }, reveal(l.kind)),
      el('span', { class: 'grow' }), l.since && el('time', { class: 'faint tiny num', datetime: l.since, title: `Since ${exact(l.since)}` }, `for ${spell(l.since)}`),
      el('span', { class: `chip ${TONES[l.state] ?? 'chip-warn'}` }, el('span', { class: 'dot', 'aria-hidden': 'true' }), reveal(l.state)));
    fill(this.#about, l.reason && el('p', { class: `note ${l.state === 'down' ? 'note-danger' : 'note-warn'}` }, icon('warn'), el('span', null, reveal(l.reason))));
    this.#media.hidden = !l.media;
    if (l.media) this.#draw(l);
  }

  #draw(l) {
    const wanted = l.switch?.on ?? Boolean(l.on);
    this.#light.className = `chip light ${LIGHTS[l.light] ?? 'chip-warn'}`;
    fill(this.#light, el('span', { class: 'dot', 'aria-hidden': 'true' }), reveal(l.says ?? 'unknown'));
    fill(this.#said, reveal(l.agent ? `The ${l.media} of agent ${l.agent}` : `A ${l.media}`), reveal(` in process ${l.instance}. `),
      `It is switched ${wanted ? 'on' : 'off'}.`,
      l.switch && [` Switched ${l.switch.on ? 'on' : 'off'} by `, l.switch.by === this.#app.principal.writer ? 'you' : reveal(l.switch.by), ' ',
        el('time', { datetime: l.switch.at, title: exact(l.switch.at) }, ago(l.switch.at) === 'now' ? 'just now' : `${ago(l.switch.at)} ago`), '.'],
      wanted && !l.on && l.state !== 'unknown' && ' It has not followed yet.');
    this.#toggle.setAttribute('aria-checked', String(wanted));
    this.#toggle.setAttribute('aria-label', `The ${l.media} ${l.listener} may record`);
    this.#toggle.title = wanted ? 'Switch it off' : 'Switch it on';
  }

  async #turn() {
    const on = this.#toggle.getAttribute('aria-checked') !== 'true';
    this.#note.replaceChildren();
    this.#toggle.setAttribute('aria-busy', 'true');
    try {
      const all = await this.#app.rpc.call('switchListener', { listener: this.#shown.listener, on });
      const now = all.find((l) => l.instance === this.#shown.instance);
      if (now) this.show(now);
      this.#app.announce(`${this.#shown.listener} is switched ${on ? 'on' : 'off'}`);
      this.#changed();
    } catch (e) {
      fill(this.#note, el('p', { class: 'note note-danger', role: 'alert' }, icon('warn'), el('span', null, reveal(refusal(e)))));
    } finally {
      this.#toggle.removeAttribute('aria-busy');
    }
  }
}

function spell(since) { return ago(since) === 'now' ? 'seconds' : ago(since); }
