// The page's HTTP requests, and the key that every request carries. A browser sends the
// cookie to every port of this host, so the cookie is only half of a login; the other
// half is kept here, where other ports cannot read it.

import { RpcError } from './rpc.js';
import { recall, remember } from './store.js';

const KEY = 'Skandha-Key';
let held = ''; // used if the browser allows no storage

function key() { return recall('key', held); }

function keep(value) {
  held = value;
  remember('key', value || undefined);
}

// forgetKey ends the login in this browser, whatever the bridge answers.
export function forgetKey() { keep(''); }

// protocols returns the WebSocket subprotocols: the contract's version, and the key.
export function protocols() { return ['skandha.v1', ...(key() ? [`skandha.key.${key()}`] : [])]; }

function ask(path, options = {}) {
  return fetch(path, { credentials: 'same-origin', cache: 'no-store', ...options, headers: { ...options.headers, ...(key() && { [KEY]: key() }) } });
}

// download returns a file of the bridge as a Blob.
export async function download(path) {
  const response = await ask(path);
  if (!response.ok) throw new RpcError({ code: 'unavailable', message: `The bridge answered ${response.status}.` });
  return response.blob();
}

// Expiry follows the bridge's clock, not the browser's.
let skew = 0; // ms by which the browser's clock is ahead

// serverNow is the bridge's time, in ms since 1970, to about a second.
export function serverNow() { return Date.now() - skew; }

// fetchBlob sends an HTTP request as request does, and returns the body of its response as a
// Blob.
export async function fetchBlob(method, path, body) { return (await answered(method, path, body)).blob(); }

// request sends an HTTP request to the bridge and returns the JSON of its response, or
// null. The body is sent as JSON, unless it is a Blob or FormData; options are further ones
// of fetch. It rejects with an RpcError, whose code is "unavailable" if there was no
// response.
export async function request(method, path, body, options) { return json(await answered(method, path, body, options)); }

async function json(response) {
  const text = await response.text();
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null; // not from the bridge; the status is enough
  }
}

// answered returns a response that is no error.
async function answered(method, path, body, options = {}) {
  const raw = body === undefined || body instanceof Blob || body instanceof FormData; // the browser knows their type
  let response;
  try {
    response = await ask(path, {
      ...options, method, headers: raw ? {} : { 'Content-Type': 'application/json' }, body: raw ? body : JSON.stringify(body),
    });
  } catch {
    throw new RpcError({ code: 'unavailable', message: 'The bridge does not answer.' });
  }
  if (response.headers.get(KEY)) keep(response.headers.get(KEY));
  const date = Date.parse(response.headers.get('Date') ?? '');
  if (!Number.isNaN(date) && Math.abs(Date.now() - date) > 1500) skew = Date.now() - date - 500;
  else skew = 0;
  if (response.ok) return response;
  const value = await json(response);
  const e = value?.error ?? value ?? {};
  throw new RpcError({ ...e, code: e.code ?? (response.status === 401 ? 'unauthenticated' : 'internal'), message: e.message ?? `The bridge answered ${response.status}.` });
}
