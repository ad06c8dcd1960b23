// The few requests that are made before there is a connection.

import { RpcError } from './rpc.js';

// The bridge's clock counts, not the browser's: what expires, expires by it.
let skew = 0; // ms that the browser is ahead

// serverNow is the bridge's time, in ms since 1970, to about a second.
export function serverNow() { return Date.now() - skew; }

// request asks the bridge by HTTP and answers its JSON, null if it has none. It rejects
// with an RpcError; its code is "unavailable" if there was no answer at all.
export async function request(method, path, body) {
  let response;
  try {
    response = await fetch(path, {
      method,
      credentials: 'same-origin',
      cache: 'no-store',
      headers: body === undefined ? {} : { 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new RpcError({ code: 'unavailable', message: 'The bridge does not answer.' });
  }
  const date = Date.parse(response.headers.get('Date') ?? '');
  if (!Number.isNaN(date) && Math.abs(Date.now() - date) > 1500) skew = Date.now() - date - 500;
  else skew = 0;
  const text = await response.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = null; // not ours; the status says enough
  }
  if (response.ok) return value;
  const e = value?.error ?? value ?? {};
  throw new RpcError({ ...e, code: e.code ?? (response.status === 401 ? 'unauthenticated' : 'internal'), message: e.message ?? `The bridge answered ${response.status}.` });
}
