// Sharing the camera: a picture a second goes to the session that is shown, until the person
// stops, leaves the session, or hides the page.

import { el, fill, icon } from './dom.js';
import { blocked } from './microphone.js';
import { request } from './http.js';
import { refusal } from './words.js';

const EVERY = 1000; // ms
const WIDTH = 640; // pixels at most
const QUALITY = 0.7; // of the JPEG: some 60 KB, far below the bridge's limit of 512 KiB
const LIGHT = 'camera';

export class Camera {
  #app;
  #button;
  #video;
  #words;
  #preview;
  #stream = null;
  #opening = false;
  #timer = 0;
  #path = '';
  #session;
  #run = 0; // counts shares: what comes from an earlier one is late
  #sending = false;

  constructor(app) {
    this.#app = app;
    this.#session = app.session();
    this.#button = el('button', { class: 'btn btn-small btn-quiet', type: 'button', 'aria-pressed': 'false', on: { click: () => (this.isOpen ? this.stop() : this.#share()) } });
    this.#video = el('video', { class: 'camera-video', 'aria-label': 'What your camera sees', muted: true, playsinline: true, autoplay: true });
    this.#video.muted = true;
    this.#words = el('span', { class: 'camera-words small', role: 'status' });
    this.#preview = el('div', { class: 'camera', hidden: true });
    this.#label();
    app.onSession(() => this.#left());
    document.addEventListener('visibilitychange', () => document.visibilityState === 'hidden' && this.isOpen && this.stop('The camera is not shared any more, because the page was hidden.'));
    addEventListener('pagehide', () => this.isOpen && this.stop());
  }

  get node() { return this.#button; }

  get preview() { return this.#preview; }

  get isOpen() { return Boolean(this.#stream) || this.#opening; }

  async #share() {
    const run = ++this.#run;
    const { agent, session } = this.#session = this.#app.session();
    this.#path = `/v1/agents/${encodeURIComponent(agent)}/sessions/${encodeURIComponent(session)}/camera`;
    this.#opening = true;
    this.#label();
    this.#show('Opening the camera…');
    try {
      if (!navigator.mediaDevices?.getUserMedia) throw new DOMException('', 'InsecureContext');
      const stream = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: WIDTH }, facingMode: { ideal: 'environment' } } });
      if (run !== this.#run) {
        release(stream);
        return;
      }
      this.#stream = stream;
      stream.getVideoTracks()[0].addEventListener('ended', () => run === this.#run && this.stop('The camera is gone, and not shared any more.'));
      this.#app.shell.lights.on(LIGHT, 'The camera is shared with this session', () => this.stop());
      this.#video.srcObject = stream;
      await this.#video.play();
    } catch (e) {
      if (run === this.#run) this.stop(blocked(e, 'camera'));
      return;
    } finally {
      if (run === this.#run) this.#opening = false;
    }
    if (run !== this.#run) return;
    this.#label();
    this.#show('The agent of this session can see this.');
    this.#app.announce('Your camera is shared with this session.');
    this.#timer = setInterval(() => this.#send(run), EVERY);
    this.#send(run);
  }

  async #send(run) {
    const { videoWidth: width, videoHeight: height } = this.#video;
    if (this.#sending || !width) return;
    this.#sending = true;
    try {
      const scale = Math.min(1, WIDTH / width);
      const canvas = el('canvas', { width: Math.round(width * scale), height: Math.round(height * scale) });
      canvas.getContext('2d').drawImage(this.#video, 0, 0, canvas.width, canvas.height);
      const picture = await new Promise((resolve) => { canvas.toBlob(resolve, 'image/jpeg', QUALITY); });
      if (run !== this.#run || !picture) return;
      await request('POST', this.#path, picture);
      if (run === this.#run) this.#words.textContent = 'The agent of this session can see this.';
      else this.#forget(); // it was stopped meanwhile
    } catch (e) {
      if (run !== this.#run) return;
      if (e.code === 'unavailable') this.#words.textContent = 'The bridge does not answer; the agent sees nothing until it does.';
      else if (e.code === 'conflict') this.stop(`The camera is not shared any more, because ${e.message}.`); // somebody has switched it off
      else if (e.code !== 'rate_limited') this.stop(`The camera is not shared any more. ${refusal(e)}`);
    } finally {
      this.#sending = false;
    }
  }

  // stop closes the camera, and has the bridge forget the latest picture.
  stop(why = '') {
    const was = Boolean(this.#stream);
    this.#run++;
    clearInterval(this.#timer);
    if (this.#stream) release(this.#stream);
    this.#stream = null;
    this.#opening = false;
    this.#video.srcObject = null;
    this.#app.shell?.lights.off(LIGHT);
    if (was) this.#forget();
    this.#label();
    if (why) {
      fill(this.#preview, icon('warn'), el('span', { class: 'grow', role: 'alert' }, why),
        el('button', { class: 'btn btn-small btn-quiet', type: 'button', on: { click: () => { this.#preview.hidden = true; } } }, 'Close'));
      this.#preview.classList.add('failed');
      this.#preview.hidden = false;
    } else this.#preview.hidden = true;
    if (was) this.#app.announce('Your camera is not shared any more.');
  }

  // #forget also works while the page is being left. If it fails, the bridge forgets the
  // picture after some seconds.
  #forget() { request('DELETE', this.#path, undefined, { keepalive: true }).catch(() => {}); }

  #left() {
    const { agent, session } = this.#app.session();
    if (agent === this.#session.agent && session === this.#session.session) return;
    this.#session = { agent, session };
    if (this.isOpen) this.stop('The camera is not shared any more, because you are in another session.');
  }

  #show(words) {
    this.#words.textContent = words;
    this.#preview.classList.remove('failed');
    fill(this.#preview, el('div', { class: 'camera-frame' }, this.#video, el('span', { class: 'light-dot', 'aria-hidden': 'true' })), this.#words,
      el('button', { class: 'btn btn-small', type: 'button', on: { click: () => this.stop() } }, 'Stop sharing'));
    this.#preview.hidden = false;
  }

  #label() {
    this.#button.setAttribute('aria-pressed', String(this.isOpen));
    fill(this.#button, icon('camera'), el('span', { class: 'tool-words' }, this.isOpen ? 'Stop sharing' : 'Share camera'));
    this.#button.setAttribute('aria-label', this.isOpen ? 'Stop sharing the camera' : 'Share camera');
    this.#button.title = this.isOpen ? 'Stop sharing the camera' : 'Show this session a picture a second of your camera';
  }
}

function release(stream) { for (const track of stream.getTracks()) track.stop(); }
