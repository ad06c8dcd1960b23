// Skandha for Node, on the official NATS client, which reconnects by itself.
//
// SKANDHA_NATS says where the bus is:  eval "$(bin/skandha env --data .data)"
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, headers } from "@nats-io/transport-node";

/** Connects to the bus and never gives it up. */
export function dial(name) {
  if (!process.env.SKANDHA_NATS) {
    console.error('SKANDHA_NATS is not set; type: eval "$(bin/skandha env --data .data)"');
    process.exit(1);
  }
  const url = new URL(process.env.SKANDHA_NATS);
  const [user, pass] = [url.username, url.password].map(decodeURIComponent);
  const who = pass ? { user, pass } : user ? { token: user } : {};
  return connect({ servers: url.host, name, ...who, maxReconnectAttempts: -1, reconnectTimeWait: 500 });
}

/**
 * Registers a plugin and answers, handlers being {subject: async function of the request's JSON}. It returns when
 * the plugin is gone: after Ctrl-C, SIGTERM, `skandha plugins unload`, or when run, if there is one, has returned.
 * What has begun is finished, and nothing is left.
 */
export async function serve(manifest, handlers, run) {
  const me = `node-${randomBytes(8).toString("hex")}`; // the instance: new at each start
  const name = manifest.name;
  const nc = await dial(name);
  const leaving = new AbortController();
  const work = new Set();
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => leaving.abort());
  for (const [subject, handler] of Object.entries(handlers)) {
    nc.subscribe(subject, {
      queue: name,
      callback: (_, message) => {
        const job = answer(name, handler, message).finally(() => work.delete(job));
        work.add(job);
      },
    });
  }

  let n = 0;
  const ask = async (verb, body) => { // the registry, which answers under its own name only
    const reply = `reply.core.${me}.${(++n).toString(36)}`;
    const message = await nc.request(`plugin.${verb}.${name}`, JSON.stringify(body), { noMux: true, reply, timeout: 2000 });
    const lease = message.json();
    if (message.headers?.has("Skandha-Error")) throw Object.assign(new Error(lease.message), lease);
    return lease;
  };

  let lease, ran;
  while (lease?.state !== "gone") {
    const before = lease?.state;
    const idle = leaving.signal.aborted && (before !== "draining" || work.size === 0);
    try {
      if (!lease) lease = await ask("register", { ...manifest, instance: me });
      else if (idle) lease = await ask("unregister", { instance: me });
      else lease = await ask("heartbeat", { instance: me, hash: lease.hash });
    } catch (e) {
      if (e.code === "not_found" && !leaving.signal.aborted) lease = undefined; // silent for too long: register again
      else if (leaving.signal.aborted) break; // the lease ends by itself
      else if (e.retryable === false) throw e; // the manifest is refused, for example
    }
    if (lease && lease.state !== before) console.error(`${name} is ${lease.state}`, lease.reason ?? "");
    if (lease?.state === "draining") leaving.abort();
    if (lease?.state === "active" && run) ran ??= run(nc).finally(() => leaving.abort());
    await sleep(leaving.signal.aborted ? 300 : (lease?.ttl_ms ?? 3000) / 3, null,
      leaving.signal.aborted ? {} : { signal: leaving.signal }).catch(() => {});
  }
  await nc.drain();
}

async function answer(name, handler, message) {
  if (Date.now() > Number(message.headers?.get("Skandha-Deadline") || Infinity)) return; // nobody waits any more
  try {
    message.respond(JSON.stringify(await handler(message.json())));
  } catch (e) {
    const h = headers();
    h.set("Skandha-Error", "internal");
    message.respond(JSON.stringify({ code: "internal", message: `${name}: ${e.message}`, retryable: false }), { headers: h });
  }
}
