// Push-to-talk: hold the button, or click it and click it again. What was said becomes text
// in the input field, and is sent. A recording that could not be transcribed is kept until
// it is tried again or dropped.

import { el, fill, icon } from './dom.js';
import { Recording, blocked } from './microphone.js';
import { request } from './http.js';
import { refusal } from './words.js';

const HOLD = 350; // ms from which on a press is held, and ends with its release
const MOST = 60_000; // ms of a recording
const LIGHT = 'microphone';

export class Talk {
  #app;
  #hooks;
  #button;
  #status;
  #state = 'idle'; // opening, listening or transcribing
  #recording = null;
  #kept = null; // a recording that was not transcribed
  #pressed = 0; // when the press began; 0: not pressed
  #starts = false; // the press has started the recording
  #seconds = el('span', { class: 'num', 'aria-hidden': 'true' });
  #session;
  #handled = false; // the press was handled: the click that follows is not another one
  #timer = 0;
  #clock = 0;
  #run = 0; // counts recordings: what comes from an earlier one is late

  // hooks: {said(text), listening()}
  constructor(app, hooks) {
    this.#app = app;
    this.#hooks = hooks;
    this.#button = el('button', {
      class: 'talk', type: 'button', 'aria-pressed': 'false', 'aria-label': 'Talk', title: 'Hold to talk, or click to start and stop',
      on: {
        pointerdown: (e) => { if (e.button === 0) { this.#button.setPointerCapture(e.pointerId); this.#down(); } },
        pointerup: () => this.#up(),
        pointercancel: () => this.#up(),
        keydown: (e) => { if (e.key === ' ') { e.preventDefault(); if (!e.repeat) this.#down(); } },
        keyup: (e) => { if (e.key === ' ') { e.preventDefault(); this.#up(); } },
        click: () => { if (!this.#handled) this.#toggle(); this.#handled = false; },
        blur: () => { if (this.#pressed) this.#up(); },
        contextmenu: (e) => e.preventDefault(), // a long press of touch screens
      },
    }, icon('mic'));
    this.#status = el('div', { class: 'talk-status small', role: 'status', hidden: true });
    app.onSession(() => this.#left());
    addEventListener('pagehide', () => this.#drop());
    document.addEventListener('keydown', (e) => {
      if (e.key !== 'Escape' || e.defaultPrevented || !this.isOpen) return;
      e.preventDefault(); // it does not cancel the turn as well
      this.#drop();
      this.#app.announce('Not recorded.');
    }, true);
    this.#session = app.session();
  }

  get node() { return this.#button; }

  get status() { return this.#status; }

  get isOpen() { return this.#state === 'opening' || this.#state === 'listening'; }

  #down() {
    this.#pressed = performance.now();
    this.#handled = true;
    this.#starts = !this.isOpen;
    if (this.#starts) this.#listen();
  }

  #up() {
    if (!this.#pressed) return;
    const held = performance.now() - this.#pressed >= HOLD;
    this.#pressed = 0;
    if (!this.#starts) this.#done();
    else if (held && this.#state === 'listening') this.#done();
    // else it listens until the next press; so it does if the browser asked for permission meanwhile
  }

  #toggle() {
    if (this.isOpen) this.#done();
    else this.#listen();
  }

  async #listen() {
    if (this.#state !== 'idle') return;
    const run = ++this.#run;
    this.#kept = null;
    this.#session = this.#app.session();
    this.#hooks.listening();
    this.#set('opening');
    this.#say('Opening the microphone…');
    const recording = this.#recording = new Recording();
    try {
      const open = await recording.open({
        onLevel: (level) => run === this.#run && this.#button.style.setProperty('--level', level.toFixed(2)),
        onLost: () => run === this.#run && this.#done(),
      });
      if (!open || run !== this.#run) return;
    } catch (e) {
      if (run !== this.#run) return;
      this.#set('idle');
      this.#fail(blocked(e, 'microphone'));
      return;
    }
    this.#set('listening');
    this.#app.shell.lights.on(LIGHT, 'The microphone is open', () => this.#drop());
    const began = performance.now();
    const count = () => this.#clocked(Math.floor((performance.now() - began) / 1000));
    this.#listening();
    count();
    this.#clock = setInterval(count, 1000);
    this.#timer = setTimeout(() => this.#done(), MOST);
    this.#app.announce('Listening. Press again to send, Escape to drop it.');
  }

  #listening() {
    fill(this.#status, el('span', { class: 'light-dot', 'aria-hidden': 'true' }), el('span', { class: 'grow' }, 'Listening ', this.#seconds),
      el('span', { class: 'muted' }, 'Esc drops it'));
    this.#status.hidden = false;
  }

  #clocked(s) { this.#seconds.textContent = `${s} s of ${MOST / 1000}`; }

  // #done ends the recording and has it transcribed.
  async #done() {
    const run = this.#run;
    const recording = this.#recording;
    if (!recording) return;
    if (this.#state === 'opening') { // it was pressed again before the microphone was open
      this.#drop();
      return;
    }
    this.#recording = null;
    this.#quiet();
    this.#set('transcribing');
    this.#say('Transcribing…', 'spinner');
    try {
      const wav = await recording.stop();
      if (run !== this.#run) return;
      if (wav) await this.#transcribe(run, wav);
      else {
        this.#set('idle');
        this.#fail('Nothing was recorded. Hold the button while you talk.');
      }
    } catch (e) { // the browser cannot convert it
      if (run !== this.#run) return;
      this.#set('idle');
      this.#fail(`The recording cannot be read: ${e.message}`);
    }
  }

  async #transcribe(run, wav) {
    this.#set('transcribing');
    this.#say('Transcribing…', 'spinner');
    const form = new FormData();
    form.append('file', wav, 'speech.wav');
    form.append('model', 'default');
    let text = '';
    try {
      ({ text } = await request('POST', '/v1/audio/transcriptions', form));
    } catch (e) {
      if (run !== this.#run) return;
      this.#kept = wav;
      this.#set('idle');
      this.#fail(e.code === 'no_transcriber' ? `This system cannot hear yet: ${e.message}.` : `Not transcribed. ${refusal(e)}`, true);
      return;
    }
    if (run !== this.#run) return;
    this.#set('idle');
    if (!text.trim()) {
      this.#fail('Nothing was understood. Try again, closer to the microphone.');
      return;
    }
    this.#say('');
    this.#hooks.said(text.trim());
  }

  // #drop ends the recording and forgets it.
  #drop() {
    this.#run++;
    this.#recording?.cancel();
    this.#recording = null;
    this.#kept = null;
    this.#quiet();
    this.#set('idle');
    this.#say('');
  }

  // #left is called when the session is loaded, which may be another one: what was said is not
  // for that.
  #left() {
    const { agent, session } = this.#app.session();
    if (agent === this.#session.agent && session === this.#session.session) return;
    this.#session = { agent, session };
    this.#drop();
  }

  #quiet() {
    clearInterval(this.#clock);
    clearTimeout(this.#timer);
    this.#button.style.setProperty('--level', '0');
    this.#app.shell?.lights.off(LIGHT);
  }

  #set(state) {
    this.#state = state;
    this.#button.dataset.state = state;
    this.#button.setAttribute('aria-pressed', String(this.isOpen));
    this.#button.setAttribute('aria-label', this.isOpen ? 'Stop, and send what you said' : 'Talk');
    this.#button.disabled = state === 'transcribing';
  }

  #say(words, before) {
    fill(this.#status, before && el('span', { class: before, 'aria-hidden': 'true' }), words && el('span', { class: 'grow' }, words));
    this.#status.hidden = !words;
  }

  // #fail shows what went wrong; with again, the recording can be tried again.
  #fail(words, again = false) {
    const run = this.#run;
    const retry = again && el('button', { class: 'btn btn-small', type: 'button', on: { click: () => this.#transcribe(run, this.#kept) } }, 'Try again');
    fill(this.#status, icon('warn'), el('span', { class: 'grow' }, words), retry,
      el('button', { class: 'btn btn-small btn-quiet', type: 'button', on: { click: () => this.#drop() } }, again ? 'Drop it' : 'Close'));
    this.#status.hidden = false;
    this.#app.announce(words, true);
  }
}
