// The audio worklet of the microphone: it hands the samples to the page, some 20 times a
// second, with their loudness.

const EVERY = 2400; // samples

class Tap extends AudioWorkletProcessor {
  #block = new Float32Array(EVERY);
  #length = 0;

  process([input]) {
    const samples = input?.[0];
    if (!samples) return true; // the microphone has no signal yet
    for (let i = 0; i < samples.length;) {
      const n = Math.min(samples.length - i, EVERY - this.#length);
      this.#block.set(samples.subarray(i, i + n), this.#length);
      i += n;
      this.#length += n;
      if (this.#length === EVERY) this.#send();
    }
    return true;
  }

  #send() {
    let sum = 0;
    for (const s of this.#block) sum += s * s;
    this.port.postMessage({ samples: this.#block, level: Math.sqrt(sum / EVERY) }, [this.#block.buffer]);
    this.#block = new Float32Array(EVERY);
    this.#length = 0;
  }
}

registerProcessor('tap', Tap);
