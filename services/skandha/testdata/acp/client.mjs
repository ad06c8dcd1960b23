// An editor for tests, made with the SDK of the Agent Client Protocol. It starts the agent that
// AGENT names (a JSON array), reads orders from standard input, one line of JSON each, and prints
// what it gets as lines of JSON.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { Readable, Writable } from 'node:stream';
import * as acp from '@agentclientprotocol/sdk';

const print = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);
const [program, ...args] = JSON.parse(process.env.AGENT);
const agent = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
print({ pid: agent.pid });
const ended = new Promise((done) => { agent.on('exit', (exit) => { print({ exit }); done(); }); });

let choice = 'allow_once'; // the kind of option that is chosen; '' waits
const app = acp.client({ name: 'test editor' })
  .onRequest(acp.methods.client.session.requestPermission, async ({ params, signal }) => {
    print({ permission: params });
    if (choice === '') {
      await new Promise((done) => { signal.addEventListener('abort', done); });
      print({ withdrawn: params.toolCall.toolCallId });
      return { outcome: { outcome: 'cancelled' } };
    }
    const option = params.options.find((o) => o.kind === choice);
    return { outcome: { outcome: 'selected', optionId: option.optionId } };
  })
  .onNotification(acp.methods.client.session.update, ({ params }) => print(params));

const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
await app.connectWith(stream, async (ctx) => {
  const cwd = process.cwd();
  const m = acp.methods.agent;
  const orders = {
    initialize: () => ctx.request(m.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} }),
    new: (mcpServers) => ctx.request(m.session.new, { cwd, mcpServers }),
    load: (sessionId) => ctx.request(m.session.load, { cwd, mcpServers: [], sessionId }),
    list: () => ctx.request(m.session.list, { cwd }),
    prompt: ({ sessionId, prompt }) => ctx.request(m.session.prompt, { sessionId, prompt }),
    cancel: (sessionId) => ctx.notify(m.session.cancel, { sessionId }),
    choose: (kind) => { choice = kind; },
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const [[order, value]] = Object.entries(JSON.parse(line));
    // A prompt takes a while, in which further orders come.
    Promise.resolve(orders[order](value)).then(
      (result) => print({ done: order, result }),
      (e) => print({ done: order, error: { code: e.code, message: e.message, data: e.data } }),
    );
  }
  agent.stdin.end();
  await ended;
}).catch((e) => print({ closed: e.message })); // the agent may close its output first
await ended;
