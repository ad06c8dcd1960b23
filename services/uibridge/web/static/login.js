// Who is there: the login that this browser keeps says it, or a one-time code in the
// address, or a token that is typed in.

import { el } from './dom.js';
import { brand } from './shell.js';
import { request } from './http.js';
import { refusal } from './words.js';

// login answers the principal, after as much asking as it takes.
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

// exchange trades a one-time code for a login; it answers what is wrong, or ''.
async function exchange(code) {
  if (!code) return '';
  try {
    await request('POST', '/v1/auth/code', { code });
    return '';
  } catch (e) {
    return e.code === 'unauthenticated' || e.code === 'invalid_argument'
      ? 'This link has been used already, or has expired: each one opens the page once. Paste the token, or make a new link.' : refusal(e);
  }
}

// hasCode says whether the address carries a one-time code.
export function hasCode() { return location.hash.startsWith('#code='); }

// takeCode takes the one-time code out of the address, where it must not stay: the
// history and whoever looks at the screen would have it.
function takeCode() {
  if (!hasCode()) return '';
  const code = location.hash.slice('#code='.length);
  history.replaceState(null, '', location.pathname + location.search);
  return code;
}

function ask(root, problem) {
  return new Promise((resolve) => {
    addEventListener('hashchange', resolve, { once: true }); // a link may be opened in this very tab
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
            message.textContent = e.code === 'unauthenticated' || e.code === 'invalid_argument' ? 'This token is not known, or has expired.' : refusal(e);
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
        el('p', { class: 'muted', id: 'login-help' }, 'Open a fresh link: ', el('code', null, 'skandha ui'), ' prints one, good for one opening. Or paste the token; this browser then stays signed in until you sign out.'),
        form,
        el('p', { class: 'muted small' }, 'The owner’s token is in the file ', el('code', null, 'ui-token'), ' of the data directory, unless the configuration names another.'))));
    token.focus();
  });
}
