// Sign-in: by the login that this browser keeps, a one-time code in the address, or a
// typed token.

import { el } from './dom.js';
import { brand } from './shell.js';
import { request } from './http.js';
import { refusal } from './words.js';

// login returns the principal, after asking for a token until one is accepted.
export async function login(root) {
  for (;;) {
    let problem = await exchange(takeCode());
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

function ask(root, problem) {
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

    root.replaceChildren(el('main', { class: 'login' },
      el('div', { class: 'login-card card' },
        el('h1', null, brand()),
        el('p', { class: 'muted', id: 'login-help' }, 'Open a fresh link: ', el('code', null, 'skandha ui'), ' prints a one-time link. Or paste the token; this browser then stays signed in until you sign out.'),
        form,
        el('p', { class: 'muted small' }, 'The owner’s token is in the file ', el('code', null, 'ui-token'), ' of the data directory, unless the configuration sets it.'))));
    token.focus();
  });
}
