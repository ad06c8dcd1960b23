// The page's entry point: signs in, selects the session, and starts the parts.
//
// # The interface for parts
//
// Parts of the panel are modules with `export function mount(root, app)`. root is an empty
// tab panel; it receives the events "show" and "hide" with its tab. app is
//
//   rpc.call(method, params)   → Promise of the result; rejects with RpcError {code, message, field}
//   on(method, fn(params, id, text)) → off(); the bridge's notifications, by the contract's names; id is "" if it has no place in
//                                the log, text is the raw message. "connection" comes from the page itself: {state: "connecting" | "open" | "waiting" | "closed"}
//   session()                  → {agent, session} that is shown
//   onSession(fn)              → off(); the log is about to be sent again (of another session, or from further
//                                back in this one): forget what you have. fn gets {agent, session}
//   rights, can(right)         the rights with the agent that is shown: see, talk, approve, administer
//   principal                  {name, writer, rights, agents, by_agent, person}
//   el, svg, icon              builders of dom.js
//   faults                     {onChange(fn), refresh()}: the problems of the system, as getStatus returns them
//   announce(text, urgent)     announces a text to screen readers; urgent interrupts
//   openTurn(turn)             shows a turn's timeline, e.g. openTurn("t42")
//   onTurn(fn)                 → off(); fn(turn) when openTurn was called; turn() is the last one of this session, or ''
//   openSession({agent, session}), showTurn(turn)   another session; scrolls the conversation to a turn
//   fmt                        {time, timeSeconds, exact, ago, duration, bytes, json, count}

import * as fmt from './fmt.js';
import { el, icon, svg } from './dom.js';
import { Connection, RpcError } from './rpc.js';
import { openFiles } from './files.js';
import { forgetKey, protocols, request } from './http.js';
import { recall, remember } from './store.js';
import { hasCode, login } from './login.js';
import { Shell } from './shell.js';
import { Sessions } from './sessions.js';
import { Conversation } from './conversation.js';
import { Panel } from './panel.js';
import { Faults } from './faults.js';
import { shortcuts } from './keys.js';

// A turn is named after the sequence of its input.
const ID = /^[A-Za-z0-9_-]{1,64}$/;

async function boot() {
  const root = document.getElementById('app');
  const principal = await login(root);
  start(root, principal);
}

function start(root, principal) {
  const listeners = new Map(); // of notifications, by method
  const sessionListeners = new Set();
  const turnListeners = new Set();
  let current = { agent: '', session: '' };
  let turn = '';

  const notify = (method, params, id = '', text = '') => {
    for (const fn of listeners.get(method) ?? []) {
      try {
        fn(params, id, text);
      } catch (e) {
        console.error(`${method}:`, e); // a failing part does not stop the others
      }
    }
  };

  const connection = new Connection(socketAddress(), {
    protocols,
    onNotification: notify,
    onState: (state, detail) => notify('connection', { state, detail }),
    onAttachFailed: (e) => notify('attachFailed', e),
    onRefused: async () => {
      try {
        await request('GET', '/v1/auth/me');
      } catch (e) {
        if (e.code === 'unauthenticated') leave();
      }
    },
  });

  const listen = (set, fn) => { set.add(fn); return () => set.delete(fn); };
  const app = {
    principal,
    get rights() { return rightsOf(principal, current.agent || parse(location.hash)?.agent || defaultAgent(principal)); },
    can: (right) => app.rights.includes(right),
    rpc: { call: (method, params, options) => connection.call(method, params, options) },
    connection,
    on(method, fn) {
      if (!listeners.has(method)) listeners.set(method, new Set());
      return listen(listeners.get(method), fn);
    },
    session: () => ({ ...current }),
    onSession: (fn) => listen(sessionListeners, fn),
    // attach starts receiving the session's log after the place.
    async attach(after) {
      for (const fn of sessionListeners) fn({ ...current });
      await connection.attach({ ...current, after });
    },
    turn: () => turn,
    onTurn: (fn) => listen(turnListeners, fn),
    openTurn(name) {
      turn = name;
      app.panel.show('timeline');
      for (const fn of turnListeners) fn(name);
    },
    showTurn: (name) => app.conversation.showTurn(name),
    openSession({ agent, session }) { location.hash = `#/${agent}/${session}`; },
    newSession(agent = current.agent || defaultAgent(principal)) {
      app.openSession({ agent, session: newName() });
      app.conversation.focus();
    },
    async logout() {
      connection.close(); // otherwise it would reconnect, and be refused
      await request('POST', '/v1/auth/logout', {}).catch(() => {}); // on failure the cookie remains, and the next visit shows it
      forgetKey();
      leave();
    },
    el, svg, icon, fmt,
  };

  const shell = new Shell(root, app);
  app.announce = shell.announce;
  app.shell = shell;
  app.faults = new Faults(app);
  app.panel = new Panel(shell.panel, app);
  app.conversation = new Conversation(shell.main, app);
  app.sessions = new Sessions(shell.rail, app);
  shortcuts(app);
  openFiles(app);

  app.on('onDropped', (d) => {
    if (d.code === 'unauthenticated') leave();
  });

  const route = () => {
    if (hasCode()) return leave(); // another link was opened here: reload the page, which removes the code from the address
    const next = parse(location.hash);
    if (!next) {
      history.replaceState(null, '', `#/${defaultAgent(principal)}/${newName()}`);
      return route();
    }
    if (next.agent === current.agent && next.session === current.session) return undefined;
    if (current.agent && String(rightsOf(principal, next.agent)) !== String(app.rights)) return leave(); // the page shows what one may do
    current = next;
    turn = '';
    remember('session', current);
    shell.closeDrawer();
    return app.conversation.open(current);
  };
  addEventListener('hashchange', route);
  if (!parse(location.hash)) {
    const last = recall('session', null);
    if (last && ID.test(last.agent) && ID.test(last.session)) history.replaceState(null, '', `#/${last.agent}/${last.session}`);
  }
  route();
  connection.open();
}

function socketAddress() {
  const u = new URL('/v1/ws', location.href);
  u.protocol = u.protocol === 'https:' ? 'wss:' : 'ws:';
  u.hash = '';
  return u.href;
}

function parse(hash) {
  const m = /^#\/([^/]+)\/([^/]+)$/.exec(hash);
  return m && ID.test(m[1]) && ID.test(m[2]) ? { agent: m[1], session: m[2] } : null;
}

function rightsOf(principal, agent) { return principal.by_agent?.[agent] ?? principal.rights ?? []; }

function defaultAgent(principal) { return principal.agents?.[0] ?? 'main'; }

// newName returns a session name of the date and four characters that are easy to say and
// type.
function newName() {
  const letters = 'abcdefghjkmnpqrstuvwxyz23456789';
  const random = crypto.getRandomValues(new Uint8Array(4));
  const now = new Date();
  const day = `${String(now.getMonth() + 1).padStart(2, '0')}${String(now.getDate()).padStart(2, '0')}`;
  return `web-${day}-${[...random].map((n) => letters[n % letters.length]).join('')}`;
}

function leave() { location.reload(); }

boot().catch((e) => {
  console.error(e);
  document.getElementById('app').replaceChildren(el('p', { class: 'booting', role: 'alert' },
    e instanceof RpcError ? e.message : `The page has failed: ${e.message}`));
});
