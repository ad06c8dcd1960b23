// Reading answers aloud: with the configured speaker, or else with the browser's voice.

import { fetchBlob } from './http.js';
import { refusal } from './words.js';

const PIECE = 400; // characters that are read at once: browsers give up on long texts

export class Voice {
  #notice;
  #speaker = true; // whether there may be a speaker
  #run = 0; // counts what is read: stop() ends the earlier
  #context = null;
  #source = null;
  #reading = false;

  // notice shows a message to the person.
  constructor(notice) {
    this.#notice = notice;
    document.addEventListener('keydown', (e) => {
      if (e.key !== 'Escape' || e.defaultPrevented || !this.#reading) return;
      e.preventDefault(); // it does not cancel the turn as well
      this.stop();
    }, true);
  }

  // say reads an answer in Markdown, after what is being read has been cut off.
  async say(markdown) {
    this.stop();
    const run = this.#run;
    this.#reading = true;
    try {
      for (const piece of pieces(spoken(markdown))) {
        if (run !== this.#run) return;
        await this.#read(piece, run);
      }
    } catch (e) {
      if (run === this.#run) this.#notice(`The answer cannot be read aloud: ${e.message || e}`);
    } finally {
      if (run === this.#run) this.#reading = false;
    }
  }

  stop() {
    this.#run++;
    this.#reading = false;
    try {
      this.#source?.stop();
    } catch { /* it has not begun */ }
    this.#source = null;
    globalThis.speechSynthesis?.cancel();
  }

  async #read(text, run) {
    if (this.#speaker) {
      try {
        await this.#play(await fetchBlob('POST', '/v1/audio/speech', { model: 'default', input: text }), run);
        return;
      } catch (e) {
        if (run !== this.#run) return;
        if (e.code === 'no_speaker') this.#speaker = false;
        else this.#notice(`The speaker failed, so the browser’s voice reads: ${refusal(e)}`);
      }
    }
    await utter(text);
  }

  async #play(blob, run) {
    const bytes = await blob.arrayBuffer();
    if (run !== this.#run) return;
    this.#context ??= new AudioContext();
    await this.#context.resume();
    const buffer = await this.#context.decodeAudioData(bytes);
    if (run !== this.#run) return;
    await new Promise((resolve) => {
      const source = this.#source = this.#context.createBufferSource();
      source.buffer = buffer;
      source.connect(this.#context.destination);
      source.addEventListener('ended', resolve);
      source.start();
    });
  }
}

// utter reads a text with the browser's voice.
function utter(text) {
  return new Promise((resolve, reject) => {
    if (!globalThis.speechSynthesis) {
      reject(new Error('this browser has no voice; set providers.speaker in the configuration file'));
      return;
    }
    const u = new SpeechSynthesisUtterance(text);
    u.addEventListener('end', resolve);
    u.addEventListener('error', ({ error }) => {
      if (error === 'interrupted' || error === 'canceled') resolve();
      else reject(new Error(`the browser’s voice failed (${error}); set providers.speaker in the configuration file`));
    });
    speechSynthesis.speak(u);
  });
}

// spoken returns what is read of an answer in Markdown: no code, no addresses, no marks.
export function spoken(markdown) {
  return markdown
    .replace(/^(`{3,}|~{3,})[\s\S]*?(^\1[`~]*\s*$|$(?![\s\S]))/gm, ' ')
    .replace(/!\[([^\]]*)\]\([^)]*\)/g, '$1').replace(/\[([^\]]+)\]\([^)]*\)/g, '$1').replace(/https?:\/\/\S+/g, ' ')
    .replace(/^\s*\|?[\s:|-]+\|\s*$/gm, ' ').replace(/^\s{0,3}(#{1,6}|>|[-*+]|\d+[.)])\s+/gm, '').replace(/[*_`|~]+/g, ' ')
    .replace(/\n{2,}/g, '. ').replace(/\s+/g, ' ').replace(/\s+([.!?:;,])/g, '$1').replace(/([.!?:;,])\./g, '$1').trim();
}

// pieces splits a text at the ends of sentences, or else at spaces.
export function pieces(text) {
  const out = [];
  for (let rest = text; rest;) {
    let at = rest.length;
    if (at > PIECE) {
      const head = rest.slice(0, PIECE);
      at = Math.max(head.lastIndexOf('. '), head.lastIndexOf('! '), head.lastIndexOf('? ')) + 1 || head.lastIndexOf(' ') || PIECE;
      if (at < 1) at = PIECE;
    }
    out.push(rest.slice(0, at).trim());
    rest = rest.slice(at).trim();
  }
  return out.filter(Boolean);
}
