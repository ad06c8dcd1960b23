// Sign-in: by the login that this browser keeps, a one-time code in the address, a provider of
// OpenID Connect, or a typed token.

import { el } from './dom.js';
import { brand } from './shell.js';
import { request } from './http.js';
import { recall, remember } from './store.js';
import { refusal } from './words.js';

// What the bridge says about the provider's answer.
const ANSWERS = {
  state: 'That sign-in was not begun in this browser, or took too long. Try again.',
  denied: 'The provider did not sign you in.',
  invalid: 'The provider’s answer is not valid. The log of the bridge says why.',
  unknown: 'The provider knows you, but you are not among the people who may use this page. Ask its operator to add you.',
  unavailable: 'The provider does not answer. Try again later, or sign in with a token.',
};

// login returns the principal, after asking for a token until one is accepted.
export async function login(root) {
  for (;;) {
    let problem = await exchange(takeCode()) || await arrive();
    try {
      return await request('GET', '/v1/auth/me');
    } catch (e) {
      if (e.code !== 'unauthenticated') problem = refusal(e);
    }
    await ask(root, problem);
  }
}

// exchange trades a one-time code for a login; it returns an error message, or ''.
async function exchange(code) {
  if (!code) return '';
  try {
    await request('POST', '/v1/auth/code', { code });
    return '';
  } catch (e) {
    return e.code === 'unauthenticated' || e.code === 'invalid_argument'
      ? 'This link has expired or was already used: each link works once. Paste the token, or create a new link.' : refusal(e);
  }
}

// hasCode reports whether the address contains a one-time code.
export function hasCode() { return location.hash.startsWith('#code='); }

// takeCode removes the one-time code from the address and returns it. It must not stay
// in the address, which others can see on the screen or in the history.
function takeCode() {
  if (!hasCode()) return '';
  const code = location.hash.slice('#code='.length);
  history.replaceState(null, '', location.pathname + location.search);
  return code;
}

// arrive finishes the sign-in that the provider has answered; it returns an error message, or ''.
async function arrive() {
  if (!location.hash.startsWith('#oidc=')) return '';
  const says = location.hash.slice('#oidc='.length);
  const { secret, at } = recall('oidc', {});
  remember('oidc', undefined);
  history.replaceState(null, '', typeof at === 'string' && at.startsWith('#/') ? at : location.pathname);
  if (says !== 'ok') return ANSWERS[says] ?? ANSWERS.invalid;
  try {
    await request('POST', '/v1/auth/oidc/finish', { secret: secret ?? '' });
    return '';
  } catch (e) {
    return e.code === 'unauthenticated' ? ANSWERS.state : refusal(e);
  }
}

// depart goes to the provider. Only a page that has the secret can finish what it begins.
async function depart() {
  const secret = base64(crypto.getRandomValues(new Uint8Array(32)));
  const sum = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(secret));
  const { url } = await request('POST', '/v1/auth/oidc/start', { page: base64(new Uint8Array(sum)) });
  remember('oidc', { secret, at: location.hash });
  location.assign(url);
}

function base64(bytes) {
  return btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

async function ask(root, problem) {
  const ways = await request('GET', '/v1/auth/ways').catch(() => ({}));
  return new Promise((resolve) => {
    addEventListener('hashchange', resolve, { once: true }); // a link may be opened in this tab
    const message = el('p', { class: 'note note-danger', role: 'alert', id: 'login-problem', hidden: !problem }, problem);
    const token = el('input', {
      class: 'input mono', id: 'token', name: 'token', type: 'password', autocomplete: 'current-password', autocapitalize: 'off', spellcheck: 'false',
      required: true, 'aria-describedby': 'login-help login-problem', maxlength: 4096,
    });
    const button = el('button', { class: 'btn btn-primary', type: 'submit' }, 'Sign in');
    const form = el('form', {
      class: 'login-form', on: {
        submit: async (event) => {
          event.preventDefault();
          button.disabled = true;
          message.hidden = true;
          try {
            await request('POST', '/v1/auth/token', { token: token.value.trim() });
            resolve();
          } catch (e) {
            message.textContent = e.code === 'unauthenticated' || e.code === 'invalid_argument' ? 'This token is unknown or has expired.' : refusal(e);
            message.hidden = false;
            button.disabled = false;
            token.select();
          }
        },
      },
    }, el('label', { class: 'label', for: 'token' }, 'Token'), token, message, button);

    const provider = ways?.oidc && el('button', {
      class: 'btn btn-primary', type: 'button', id: 'login-oidc', on: {
        click: async () => {
          provider.disabled = true;
          message.hidden = true;
          try {
            await depart();
          } catch (e) {
            message.textContent = e.message; // the provider's trouble, not the bus's
            message.hidden = false;
            provider.disabled = false;
          }
        },
      },
    }, `Sign in with ${ways.oidc.label}`);
    if (provider) {
      button.classList.remove('btn-primary');
      message.remove();
    }
    root.replaceChildren(el('main', { class: 'login' },
      el('div', { class: 'login-card card' },
        el('h1', null, brand()),
        provider && [provider, message],
        el('p', { class: 'muted', id: 'login-help' }, 'Open a fresh link: ', el('code', null, 'skandha ui'), ' prints a one-time link. Or paste the token; this browser then stays signed in until you sign out.'),
        form,
        el('p', { class: 'muted small' }, 'The owner’s token is in the file ', el('code', null, 'ui-token'), ' of the data directory, unless the configuration sets it.'))));
    (provider ?? token).focus();
  });
}
