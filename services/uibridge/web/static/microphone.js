// The microphone: one recording, as WAV with 16 kHz and one channel, which every
// recogniser can read.

export const RATE = 16_000;
const HEADER = 44; // bytes

// Recording is open from open() until stop() or cancel(), which release the microphone.
export class Recording {
  #stream = null;
  #context = null;
  #blocks = [];
  #closed = false;

  // open opens the microphone, which may ask the person. onLevel is called with the loudness,
  // 0 to 1; onLost if the microphone goes away. It returns false if the recording was
  // cancelled meanwhile.
  async open({ onLevel, onLost }) {
    if (!navigator.mediaDevices?.getUserMedia) throw new DOMException('', 'InsecureContext');
    const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true } });
    if (this.#closed) {
      release(stream);
      return false;
    }
    this.#stream = stream;
    stream.getAudioTracks()[0].addEventListener('ended', onLost);
    try {
      this.#context = new AudioContext();
      await this.#context.audioWorklet.addModule(new URL('./tap.js', import.meta.url));
      if (this.#closed) return false;
      const tap = new AudioWorkletNode(this.#context, 'tap', { numberOfOutputs: 0, channelCount: 1, channelCountMode: 'explicit' });
      tap.port.addEventListener('message', ({ data }) => {
        if (this.#closed) return;
        this.#blocks.push(data.samples);
        onLevel(Math.min(1, data.level * 6));
      });
      tap.port.start();
      this.#context.createMediaStreamSource(stream).connect(tap);
      await this.#context.resume();
    } catch (e) {
      this.cancel();
      throw e;
    }
    return !this.#closed;
  }

  // cancel releases the microphone and forgets what was recorded.
  cancel() {
    this.#close();
    this.#blocks = [];
  }

  // stop releases the microphone, and returns the recording as a Blob; null if there is none.
  async stop() {
    const rate = this.#context?.sampleRate ?? RATE;
    this.#close();
    const length = this.#blocks.reduce((n, b) => n + b.length, 0);
    if (!length) return null;
    const samples = new Float32Array(length);
    let at = 0;
    for (const b of this.#blocks) {
      samples.set(b, at);
      at += b.length;
    }
    this.#blocks = [];
    return wave(await resampled(samples, rate));
  }

  #close() {
    this.#closed = true;
    if (this.#stream) release(this.#stream);
    this.#stream = null;
    if (this.#context) this.#context.close().catch(() => {}); // it may be closed already
    this.#context = null;
  }
}

function release(stream) { for (const track of stream.getTracks()) track.stop(); }

async function resampled(samples, rate) {
  if (rate === RATE) return samples;
  const offline = new OfflineAudioContext(1, Math.max(1, Math.round((samples.length * RATE) / rate)), RATE);
  const buffer = offline.createBuffer(1, samples.length, rate);
  buffer.copyToChannel(samples, 0);
  const source = offline.createBufferSource();
  source.buffer = buffer;
  source.connect(offline.destination);
  source.start();
  return (await offline.startRendering()).getChannelData(0);
}

// wave returns samples as a WAV file with 16 bits.
function wave(samples) {
  const view = new DataView(new ArrayBuffer(HEADER + samples.length * 2));
  const text = (at, s) => [...s].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  text(0, 'RIFF');
  view.setUint32(4, HEADER - 8 + samples.length * 2, true);
  text(8, 'WAVEfmt ');
  view.setUint32(16, 16, true); // bytes of the format
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // channels
  view.setUint32(24, RATE, true);
  view.setUint32(28, RATE * 2, true); // bytes a second
  view.setUint16(32, 2, true); // bytes of a frame
  view.setUint16(34, 16, true); // bits
  text(36, 'data');
  view.setUint32(40, samples.length * 2, true);
  samples.forEach((s, i) => view.setInt16(HEADER + i * 2, Math.round(Math.max(-1, Math.min(1, s)) * 32767), true));
  return new Blob([view], { type: 'audio/wav' });
}

// blocked returns why a camera or microphone cannot be used, and what to do.
export function blocked(e, what) {
  switch (e?.name) {
    case 'InsecureContext':
      return `The browser lets a page use the ${what} only over HTTPS, or at localhost. Open the page at such an address.`;
    case 'NotAllowedError':
    case 'SecurityError':
      return `The ${what} is blocked for this page. Allow it in the browser’s settings for this site, and try again.`;
    case 'NotFoundError':
    case 'OverconstrainedError':
      return `No ${what} was found. Connect one, and try again.`;
    case 'NotReadableError':
    case 'AbortError':
      return `The ${what} cannot be opened; another program may be using it. Close that one, and try again.`;
  }
  return `The ${what} cannot be used: ${e?.message || e}`;
}
