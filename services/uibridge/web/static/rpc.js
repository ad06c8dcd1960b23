// JSON-RPC 2.0 over a WebSocket that comes back by itself. After a break it attaches
// again after the last id that was seen, so nothing is missed; what is told a second
// time all the same is left out here, so nothing is seen twice.

const FIRST_PAUSE = 300; // ms before the second attempt
const LONGEST_PAUSE = 10_000;
const STABLE = 5_000; // ms after which a connection counts as a good one
const TIMEOUT = 15_000; // of a request

// RpcError is a refusal: code is one of the bridge's (or "timeout", "unavailable").
export class RpcError extends Error {
  constructor({ code, message, field, retry_after_ms: retryAfter }) {
    super(message || code || 'the request was refused');
    this.name = 'RpcError';
    this.code = code || 'internal';
    this.field = field || '';
    this.retryAfter = retryAfter || 0;
  }
}

// place reads a notification's id, "<commit>.<index>" or "<commit>.h", as two numbers;
// null if it has none. A commit's own notification comes before its events.
export function place(id) {
  const m = /^(\d{1,16})\.(\d{1,9}|h)$/.exec(id ?? '');
  return m && [Number(m[1]), m[2] === 'h' ? -1 : Number(m[2])];
}

// isAfter says whether the place a comes after b, each as place gives it.
export function isAfter(a, b) {
  return a[0] > b[0] || (a[0] === b[0] && a[1] > b[1]);
}

// Connection is the page's one connection.
//
//   onNotification(method, params, id, text)   in order, each once; text is the message as it came
//   onState(state, detail)               "connecting", "open", "waiting" (detail: ms until the next try), "closed"
//   protocols()                          the subprotocols to connect with, which show who this is
//   onRefused()                          whether the token still counts is to be asked: a connection was refused
export class Connection {
  #address;
  #hooks;
  #socket = null;
  #calls = new Map();
  #next = 1;
  #tries = 0;
  #retry = 0;
  #stable = 0;
  #wanted = false;
  #target = null; // {agent, session, after}
  #attached = false; // it was asked for on this connection
  #awaited = ''; // the place that was asked for, until onAttached says that it is told from there; null: it has

  constructor(address, hooks) {
    this.#address = address;
    this.#hooks = hooks;
    addEventListener('online', () => this.#now());
    addEventListener('offline', () => this.#socket?.readyState === WebSocket.OPEN && this.#broken(this.#socket));
    document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && this.#now());
  }

  // isOpen says whether a request would go out now.
  get isOpen() { return this.#socket?.readyState === WebSocket.OPEN; }

  // lastID is the last place that was told of the session that is attached.
  get lastID() { return this.#target?.after ?? ''; }

  // open connects, and goes on doing so until close.
  open() {
    this.#wanted = true;
    this.#connect();
  }

  // close ends it for good.
  close() {
    this.#wanted = false;
    clearTimeout(this.#retry);
    this.#socket?.close(1000, 'bye');
    this.#state('closed');
  }

  // retryNow does not wait for the pause to end.
  retryNow() { this.#now(); }

  // attach asks to be told what happens in a session, after the id ("0": from its beginning,
  // "": from now on). It replaces what was attached. It resolves when the bridge has taken it;
  // if the connection breaks, it is asked again by itself.
  async attach({ agent, session, after = '' }) {
    this.#target = { agent, session, after };
    this.#attached = false;
    this.#awaited = after;
    if (this.isOpen) await this.#attach();
  }

  // call asks the bridge. It rejects with an RpcError.
  call(method, params = {}, { timeout = TIMEOUT } = {}) {
    if (!this.isOpen) return Promise.reject(new RpcError({ code: 'unavailable', message: 'There is no connection to the bridge at the moment.' }));
    const id = this.#next++;
    const socket = this.#socket;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#calls.delete(id);
        reject(new RpcError({ code: 'timeout', message: `No answer to ${method} within ${Math.round(timeout / 1000)} s.` }));
        this.#broken(socket); // a connection that swallows requests is of no use
      }, timeout);
      this.#calls.set(id, { resolve, reject, timer });
      socket.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    });
  }

  #connect() {
    clearTimeout(this.#retry);
    if (!this.#wanted || (this.#socket && this.#socket.readyState <= WebSocket.OPEN)) return;
    this.#state('connecting');
    const socket = new WebSocket(this.#url(), this.#hooks.protocols());
    this.#socket = socket;
    let opened = false;
    socket.addEventListener('open', () => {
      opened = true;
      this.#stable = setTimeout(() => { this.#tries = 0; }, STABLE);
      this.#state('open');
      this.#attach().catch((e) => this.#hooks.onAttachFailed?.(e));
    });
    socket.addEventListener('message', (m) => socket === this.#socket && this.#receive(m.data));
    socket.addEventListener('close', ({ code, reason }) => {
      if (!opened || code === 4401) this.#hooks.onRefused?.();
      else if (code >= 4400 && code < 4500 && code !== 4408 && this.#target) this.#hooks.onAttachFailed?.(new RpcError({ code: 'invalid_argument', message: reason }));
      this.#broken(socket);
    });
  }

  // A connection begins with the session, if one was chosen: a break costs one round trip less.
  #url() {
    const u = new URL(this.#address);
    u.searchParams.set('ui', 'web');
    const t = this.#target;
    this.#attached = t !== null;
    if (t) {
      this.#awaited = t.after;
      for (const [name, value] of Object.entries({ agent: t.agent, session: t.session, after: t.after, html: '1', commits: '1' })) u.searchParams.set(name, value);
    }
    return u.href;
  }

  async #attach() {
    const target = this.#target;
    if (!target || this.#attached) return;
    this.#attached = true;
    const { agent, session, after } = target;
    try {
      await this.call('attach', { agent, session, after, html: true, commits: true });
    } catch (e) {
      if (target === this.#target) this.#attached = false;
      throw e;
    }
  }

  #broken(socket) {
    if (socket !== this.#socket) return;
    this.#socket = null;
    this.#attached = false;
    clearTimeout(this.#stable);
    socket.close();
    for (const { reject, timer } of this.#calls.values()) {
      clearTimeout(timer);
      reject(new RpcError({ code: 'unavailable', message: 'The connection to the bridge broke before it answered.' }));
    }
    this.#calls.clear();
    if (!this.#wanted) return;
    // Full jitter: when a bridge comes back, its pages do not come back all at once.
    const most = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** this.#tries++);
    const pause = most / 2 + Math.random() * (most / 2);
    this.#state('waiting', pause);
    this.#retry = setTimeout(() => this.#connect(), pause);
  }

  #now() {
    if (!this.#wanted || this.#socket) return;
    this.#tries = 0;
    this.#connect();
  }

  #state(state, detail) { this.#hooks.onState?.(state, detail); }

  #receive(data) {
    let m;
    try {
      m = JSON.parse(data);
    } catch {
      console.error('the bridge sent what is no JSON');
      return;
    }
    for (const one of Array.isArray(m) ? m : [m]) {
      if (one.method) this.#notified(one, data);
      else this.#answered(one);
    }
  }

  #answered({ id, result, error }) {
    const call = this.#calls.get(id);
    if (!call) return;
    this.#calls.delete(id);
    clearTimeout(call.timer);
    if (error) call.reject(new RpcError({ message: error.message, ...(error.data ?? {}) }));
    else call.resolve(result);
  }

  #notified({ method, params }, data) {
    const p = params ?? {};
    // The log no longer holds the place: to connect again with it would be refused for ever.
    if (method === 'onDropped' && p.code === 'invalid_argument') this.#target = null;
    const t = this.#target;
    // What was on its way when another session, or another place of this one, was asked
    // for is not to be counted as seen.
    if (p.session && (p.session !== t?.session || p.agent !== t?.agent)) return;
    if (method === 'onAttached' && (this.#awaited === '' || p.after === this.#awaited)) this.#awaited = null;
    if (p.session && this.#awaited !== null) return;
    const at = place(p.id);
    if (at && t) {
      const seen = place(t.after);
      if (seen && !isAfter(at, seen)) return;
      t.after = p.id;
    }
    if (method === 'onAttached' && t && !t.after && p.after) t.after = p.after;
    this.#hooks.onNotification?.(method, p, p.id ?? '', data);
  }
}
