// A listener: sends each line of standard input to an agent, and prints the answer. As it registers, the
// writer's name is reserved for it while it runs.
//
//   npm ci && eval "$(bin/skandha env --data .data lines)" && echo "what is 2+2?" | node listener.mjs
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { serve } from "./skandha.mjs";

const session = "agent.main.node"; // agent.<agent>.<session>
const writer = "lines";
const manifest = { name: "lines", version: "1.0.0", listeners: [{ name: writer, description: "Lines of standard input." }] };

/**
 * Returns when the bus has acknowledged the text, with its sequence: from then on it is safe, and ends in exactly one
 * terminal event. Until then it is sent again, under the same id, so that it counts once.
 */
async function emitInput(nc, text) {
  const body = JSON.stringify({ text, id: randomUUID(), source: "stdin" });
  for (;;) {
    try {
      const ack = (await nc.request(`${session}.sense.input.${writer}`, body, { timeout: 5000 })).json();
      if (ack.seq) return ack.seq;
      throw new Error(ack.error?.description ?? "not stored");
    } catch (e) {
      console.error(`${e.message}; sending it again`);
      await sleep(1000);
    }
  }
}

await serve(manifest, {}, async (nc) => {
  const ends = new Map(); // by sequence: a promise's resolve, or the event if it was faster
  const ended = {
    callback: (_, message) => {
      const { type, data } = message.json();
      if (type !== "skandha.reflect.recorded.v1" && type !== "skandha.turn.failed.v1") return;
      const waiting = ends.get(data.sequence);
      if (typeof waiting === "function") waiting(data);
      else if (!ends.has(data.sequence)) ends.set(data.sequence, data);
    },
  };
  nc.subscribe(`${session}.*.*`, ended); // the events of the session, and those that answer this listener
  nc.subscribe(`${session.replace("agent", `answer.${writer}`)}.*.*`, ended);
  for await (const line of createInterface({ input: process.stdin })) {
    if (!line.trim()) continue;
    const sequence = await emitInput(nc, line);
    console.error(`acknowledged: ${sequence}`);
    const data = ends.get(sequence) ?? (await new Promise((resolve) => ends.set(sequence, resolve)));
    ends.delete(sequence);
    console.log(data.answer ?? `failed: ${data.code}: ${data.reason}`);
  }
});
process.exit(); // standard input may still be open
