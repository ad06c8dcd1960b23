// What the page hears, says and sees: push-to-talk, answers that are read aloud, and the
// shared camera, with their settings.

import { el, icon } from './dom.js';
import { recall, remember } from './store.js';
import { Camera } from './camera.js';
import { Talk } from './talk.js';
import { Voice } from './voice.js';

export class Senses {
  #talk;
  #voice;
  #aloud = recall('speech.aloud', false);
  #atOnce = recall('speech.send', true);

  // hooks: {send(text), fill(text), isEmpty(), notice(words)} of the input field
  constructor(app, hooks) {
    this.#voice = new Voice(hooks.notice);
    const aloud = toggle('speaker', 'Read answers aloud', 'Reads the agent’s answers aloud; Esc stops', this.#aloud, (on) => {
      this.#aloud = on;
      remember('speech.aloud', on);
      if (!on) this.#voice.stop();
    });
    this.tools = el('div', { class: 'composer-tools', role: 'group', 'aria-label': 'Camera and voice' });
    this.above = el('div', null);
    if (app.can('talk')) {
      this.#talk = new Talk(app, {
        listening: () => this.#voice.stop(),
        said: (text) => {
          app.announce(`You said: ${text}`);
          if (this.#atOnce && hooks.isEmpty()) hooks.send(text);
          else hooks.fill(text); // what is being written is not sent half-finished
        },
      });
      const camera = new Camera(app);
      const atOnce = toggle('send', 'Send what I say', 'Sends what you say at once; otherwise it goes into the input field', this.#atOnce, (on) => {
        this.#atOnce = on;
        remember('speech.send', on);
      });
      this.above.append(camera.preview, this.#talk.status);
      this.tools.append(camera.node, aloud, atOnce);
    } else this.tools.append(aloud);
    app.onSession(() => this.#voice.stop());
  }

  // button is the microphone, beside the input field.
  get button() { return this.#talk?.node; }

  // answered is called with the answer of a turn that has ended.
  answered(markdown) { if (this.#aloud && !this.#talk?.isOpen) this.#voice.say(markdown); }
}

function toggle(name, label, title, on, change) {
  const button = el('button', {
    class: 'btn btn-small btn-quiet', type: 'button', 'aria-pressed': String(on), 'aria-label': label, title,
    on: {
      click: () => {
        const now = button.getAttribute('aria-pressed') !== 'true';
        button.setAttribute('aria-pressed', String(now));
        change(now);
      },
    },
  }, icon(name), el('span', { class: 'tool-words' }, label));
  return button;
}
