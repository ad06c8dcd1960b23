// Skandha for Node, on the official NATS client, which reconnects by itself.
//
// SKANDHA_NATS says where the bus is, and who you are:  eval "$(bin/skandha env --data .data NAME)"
// That also sets SKANDHA_DATA, whose run.json says where the bus is now, in case it has moved.
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, headers } from "@nats-io/transport-node";

/** Where the bus is now, by SKANDHA_DATA's run.json while the system runs, and who you are, by SKANDHA_NATS. */
function where() {
  const { host, username, password } = new URL(process.env.SKANDHA_NATS);
  const [user, pass] = [username, password].map(decodeURIComponent);
  const who = pass ? { user, pass } : user ? { auth_token: user, jwt: user } : {};
  try {
    const { url } = JSON.parse(readFileSync(join(process.env.SKANDHA_DATA, "run.json")));
    return { host: new URL(url).host, who };
  } catch { // the system is down, or on another machine
    return { host, who };
  }
}

/** Connects to the bus, and reconnects forever. */
export async function dial(name) {
  if (!process.env.SKANDHA_NATS) {
    console.error('SKANDHA_NATS is not set; type: eval "$(bin/skandha env --data .data NAME)"');
    process.exit(1);
  }
  let nc, { host } = where();
  const authenticator = () => where().who;
  const reconnectDelayHandler = () => { // called before each attempt
    const now = where().host;
    if (nc && now !== host) { // the client has no public way to change the address
      nc.protocol.servers.addServer(now);
      nc.protocol.servers.removeCurrentServer();
      host = now;
    }
    return 500;
  };
  nc = await connect({ servers: host, name, authenticator, reconnectDelayHandler, maxReconnectAttempts: -1, ignoreAuthErrorAbort: true });
  return nc;
}

/**
 * Registers a plugin and answers requests. handlers is {subject: async function of the request's JSON}. It returns when
 * the plugin has left: after Ctrl-C, SIGTERM, `skandha plugins unload`, or when run, if given, has returned.
 * Requests that have begun are finished first.
 */
export async function serve(manifest, handlers, run) {
  const me = `node-${randomBytes(8).toString("hex")}`; // the instance: new at each start
  const name = manifest.name;
  const nc = await dial(name);
  const leaving = new AbortController();
  const work = new Set();
  const answers = new Answers(nc);
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => leaving.abort());
  for (const [subject, handler] of Object.entries(handlers)) {
    const callback = (_, message) => {
      const job = answer(name, handler, message, answers).finally(() => work.delete(job));
      work.add(job);
    };
    nc.subscribe(subject, { queue: name, callback }); // asked as any one of the plugin's processes,
    if (/^(tool|llm)\./.test(subject)) nc.subscribe(`${subject}.${me}`, { callback }); // or as this one
  }

  let n = 0;
  const ask = async (verb, body) => { // the registry, which answers under its own name only
    const reply = `reply.${name}.core.${me}.${(++n).toString(36)}`;
    const message = await nc.request(`plugin.${verb}.${name}`, JSON.stringify(body), { noMux: true, reply, timeout: verb === "heartbeat" ? 1000 : 2000 });
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
      if (lease && e.name === "TimeoutError" && !leaving.signal.aborted) continue; // again at once: it may have been lost
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
  await nc.drain().catch(() => nc.close()); // without a connection there is nothing to drain to
}

async function answer(name, handler, message, answers) {
  const until = Number(message.headers?.get("Skandha-Deadline") || Infinity);
  if (Date.now() > until) return; // the deadline has passed
  let question;
  try {
    question = message.json();
    if (answers.begin(question, message.reply, until)) answers.give(question, message.reply, await handler(question));
  } catch (e) {
    answers.give(question, message.reply, { code: "internal", message: `${name}: ${e.message}`, retryable: false }, "internal");
  }
}

/**
 * Remembers requests and answers, so that the same call runs once however many times it arrives, and no answer is lost with a
 * connection. Calls are remembered until their deadline; answers are sent again when the connection is back.
 */
class Answers {
  #known = new Map(); // call and attempt: {until, answer (undefined while it runs), replies}
  #sent = []; // {when, reply, body, error}

  constructor(nc) {
    this.nc = nc;
    this.#follow();
  }

  async #follow() {
    for await (const status of this.nc.status()) {
      if (status.type !== "reconnect") continue;
      for (const { when, reply, body, error } of this.#sent.splice(0)) if (Date.now() - when < 30_000) this.#send(reply, body, error, when);
    }
  }

  #key(question) {
    const [call, attempt] = [question?.call ?? question?.plan, question?.attempt];
    return typeof call === "string" && typeof attempt === "string" ? `${call} ${attempt}` : undefined;
  }

  /** Returns whether it is to be run. */
  begin(question, reply, until) {
    const key = this.#key(question);
    if (!key) return true;
    for (const [old, known] of this.#known) if (Date.now() > known.until + 60_000) this.#known.delete(old);
    const known = this.#known.get(key);
    if (!known) {
      this.#known.set(key, { until, replies: [reply] });
      return true;
    }
    known.replies.push(reply);
    if (known.answer) this.#send(reply, ...known.answer);
    return false;
  }

  give(question, reply, body, error = "") {
    const known = this.#known.get(this.#key(question));
    if (known) known.answer = [body, error];
    for (const to of known?.replies ?? [reply]) this.#send(to, body, error);
  }

  #send(reply, body, error, when = Date.now()) {
    if (!reply) return;
    this.#sent.push({ when, reply, body, error });
    if (this.#sent.length > 256) this.#sent.shift();
    const h = error ? headers() : undefined;
    h?.set("Skandha-Error", error);
    try {
      this.nc.publish(reply, JSON.stringify(body), { headers: h });
    } catch (e) {
      console.error(`not answered yet: ${e.message}`);
    }
  }
}
