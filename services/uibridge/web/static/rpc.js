// JSON-RPC 2.0 over a WebSocket that reconnects by itself. After a break it attaches
// again after the last id that was seen, so nothing is missed; notifications that
// arrive a second time are dropped here, so nothing is seen twice.

const FIRST_PAUSE = 300; // ms before the second attempt
const LONGEST_PAUSE = 10_000;
const STABLE = 5_000; // ms after which a connection counts as stable
const TIMEOUT = 15_000; // of a request

// RpcError is an error response: code is one of the bridge's codes, or "timeout" or
// "unavailable".
export class RpcError extends Error {
  constructor({ code, message, field, retry_after_ms: retryAfter }) {
    super(message || code || 'the request was refused');
    this.name = 'RpcError';
    this.code = code || 'internal';
    this.field = field || '';
    this.retryAfter = retryAfter || 0;
  }
}

// place parses a notification's id, "<commit>.<index>" or "<commit>.h", into two
// numbers; null if it has none. A commit's own notification precedes those of its
// events.
export function place(id) {
  const m = /^(\d{1,16})\.(\d{1,9}|h)$/.exec(id ?? '');
  return m && [Number(m[1]), m[2] === 'h' ? -1 : Number(m[2])];
}

// isAfter reports whether the place a is after b, each as returned by place.
export function isAfter(a, b) {
  return a[0] > b[0] || (a[0] === b[0] && a[1] > b[1]);
}

// Connection is the page's one connection.
//
//   onNotification(method, params, id, text)   in order, each once; text is the raw message
//   onState(state, detail)               "connecting", "open", "waiting" (detail: ms until the next try), "closed"
//   protocols()                          the subprotocols to connect with, which authenticate the page
//   onRefused()                          a connection was refused: check whether the login is still valid
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
  #attached = false; // attach was requested on this connection
  #awaited = ''; // the requested place, until onAttached confirms it; null after that

  constructor(address, hooks) {
    this.#address = address;
    this.#hooks = hooks;
    addEventListener('online', () => this.#now());
    addEventListener('offline', () => this.#socket?.readyState === WebSocket.OPEN && this.#broken(this.#socket));
    document.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && this.#now());
  }

  // isOpen reports whether a request can be sent now.
  get isOpen() { return this.#socket?.readyState === WebSocket.OPEN; }

  // lastID is the last place received of the attached session.
  get lastID() { return this.#target?.after ?? ''; }

  // open connects, and reconnects until close.
  open() {
    this.#wanted = true;
    this.#connect();
  }

  // close closes the connection for good.
  close() {
    this.#wanted = false;
    clearTimeout(this.#retry);
    this.#socket?.close(1000, 'bye');
    this.#state('closed');
  }

  // retryNow reconnects without waiting for the pause to end.
  retryNow() { this.#now(); }

  // attach subscribes to a session's notifications after the id ("0": from its beginning, "":
  // from now on). It replaces the previous session. It resolves when the bridge has accepted
  // it; after a broken connection it is repeated automatically.
  async attach({ agent, session, after = '' }) {
    this.#target = { agent, session, after };
    this.#attached = false;
    this.#awaited = after;
    if (this.isOpen) await this.#attach();
  }

  // call sends a request to the bridge. It rejects with an RpcError.
  call(method, params = {}, { timeout = TIMEOUT } = {}) {
    if (!this.isOpen) return Promise.reject(new RpcError({ code: 'unavailable', message: 'Not connected to the bridge.' }));
    const id = this.#next++;
    const socket = this.#socket;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#calls.delete(id);
        reject(new RpcError({ code: 'timeout', message: `No answer to ${method} within ${Math.round(timeout / 1000)} s.` }));
        this.#broken(socket); // a connection without answers is useless
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

  // The address names the session, if one is selected: reconnecting saves one round trip.
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
      reject(new RpcError({ code: 'unavailable', message: 'The connection to the bridge was lost before it answered.' }));
    }
    this.#calls.clear();
    if (!this.#wanted) return;
    // Jitter: when a bridge restarts, its pages do not reconnect all at once.
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
      console.error('the bridge sent invalid JSON');
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
    // The log no longer holds the place: connecting with it would be refused for ever.
    if (method === 'onDropped' && p.code === 'invalid_argument') this.#target = null;
    const t = this.#target;
    // Notifications that were in flight when another session or place was requested
    // must not count as seen.
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
