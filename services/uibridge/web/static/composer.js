// The input field: Enter sends, Up recalls earlier inputs, a slash completes commands.

import { el, fill, icon } from './dom.js';
import { recall, remember } from './store.js';

// COMMANDS are the commands that core and the bridge answer without the model, as /help
// lists them.
const COMMANDS = [
  ['help', 'list the commands'],
  ['reset', 'end the running turn, forget the conversation, unlock the session'],
  ['cancel', 'cancel the running turn and report which of its tool calls ran'],
  ['tools', 'list the tools that the agent can use now'],
  ['provider', 'show the language models, or choose the one that answers: /provider name'],
  ['plugins', 'list the plugins and what they do'],
  ['metrics', 'show statistics of this session and its tools'],
  ['replay', 'show what happened in the last turn, the last n turns, or one turn by id'],
  ['delete', 'delete the session; its content is removed after a while'],
  ['undelete', 'bring back a session that was deleted, while its content is still there'],
  ['quit', 'leave; the session stays open'],
];
const MOST_REMEMBERED = 100;
const LONGEST = 256 * 1024; // bytes, the limit of the bus

export class Composer {
  #hooks;
  #field;
  #send;
  #list;
  #notice;
  #options = [];
  #at = -1;
  #history = recall('history', []);
  #back = -1; // index in the history, from its end
  #draft = '';

  // hooks: {send(text, mode), canSend, beside, below}; beside are nodes left of the button
  constructor(hooks) {
    this.#hooks = hooks;
    this.#field = el('textarea', {
      class: 'composer-box', id: 'input', rows: 1, 'aria-label': 'Say something to the agent', placeholder: hooks.canSend ? 'Say something, or type /' : 'Your token may see, but not talk',
      disabled: !hooks.canSend, spellcheck: 'true', autocapitalize: 'sentences', enterkeyhint: 'send',
      role: 'combobox', 'aria-expanded': 'false', 'aria-controls': 'commands', 'aria-autocomplete': 'list', 'aria-haspopup': 'listbox',
      on: { input: () => this.#changed(), keydown: (e) => this.#keys(e), blur: () => this.#offer([]) },
    });
    this.#send = el('button', { class: 'composer-send', type: 'submit', 'aria-label': 'Send', title: 'Send (Enter)', disabled: true }, icon('send'));
    this.#list = el('ul', { class: 'commands', id: 'commands', role: 'listbox', 'aria-label': 'Commands', hidden: true });
    this.#notice = el('p', { class: 'composer-notice small', role: 'alert', hidden: true });
    this.node = el('form', { class: 'composer', on: { submit: (e) => { e.preventDefault(); this.submit(); } } }, this.#list, this.#notice,
      el('div', { class: 'composer-frame' }, this.#field, hooks.beside, this.#send), hooks.below);
  }

  focus() { this.#field.focus(); }

  // fill puts a text into the input field.
  fill(text) {
    this.#field.value = text;
    this.#changed();
    this.focus();
  }

  // add puts a text after what is in the input field.
  add(text) { this.fill(this.isEmpty ? text : `${this.#field.value.trimEnd()} ${text}`); }

  // notice shows a message about the input; '' removes it.
  notice(words) {
    this.#notice.textContent = words;
    this.#notice.hidden = !words;
  }

  // isEmpty reports whether the field is empty.
  get isEmpty() { return !this.#field.value.trim(); }

  submit(mode = 'queue') {
    const text = this.#field.value.trim();
    if (!text || !this.#hooks.canSend) return;
    if (new TextEncoder().encode(text).length > LONGEST) {
      this.notice('This is longer than 256 KB, the limit for one input.');
      return;
    }
    this.#history = [...this.#history.filter((h) => h !== text), text].slice(-MOST_REMEMBERED);
    remember('history', this.#history);
    this.#back = -1;
    this.#field.value = '';
    this.#changed();
    this.#hooks.send(text, mode);
  }

  #changed() {
    this.notice('');
    this.#send.disabled = this.isEmpty;
    this.#field.style.setProperty('height', 'auto');
    this.#field.style.setProperty('height', `${Math.min(this.#field.scrollHeight + 2, innerHeight * 0.4)}px`);
    const m = /^\/(\w*)$/.exec(this.#field.value);
    this.#offer(m ? COMMANDS.filter(([name]) => name.startsWith(m[1].toLowerCase())) : []);
  }

  #keys(event) {
    if (event.isComposing) return;
    const plain = !event.shiftKey && !event.altKey && !event.ctrlKey && !event.metaKey;
    if (this.#options.length && this.#choose(event, plain)) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    if (event.key === 'Enter' && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      this.submit(event.ctrlKey || event.metaKey ? 'interrupt' : 'queue');
    } else if (event.key === 'ArrowUp' && plain && (this.#back >= 0 || !this.#field.value)) {
      if (this.#recall(1)) event.preventDefault();
    } else if (event.key === 'ArrowDown' && plain && this.#back >= 0) {
      if (this.#recall(-1)) event.preventDefault();
    }
  }

  #recall(by) {
    const to = this.#back + by;
    if (to >= this.#history.length) return true;
    if (this.#back < 0) this.#draft = this.#field.value;
    this.#back = Math.max(to, -1);
    this.#field.value = this.#back < 0 ? this.#draft : this.#history[this.#history.length - 1 - this.#back];
    const back = this.#back;
    this.#changed();
    this.#back = back;
    this.#offer([]);
    return true;
  }

  #choose({ key }, plain) {
    if (!plain) return false;
    switch (key) {
      case 'ArrowDown': this.#mark((this.#at + 1) % this.#options.length); return true;
      case 'ArrowUp': this.#mark((this.#at - 1 + this.#options.length) % this.#options.length); return true;
      case 'Escape': this.#offer([]); return true;
      case 'Tab':
      case 'Enter': {
        const name = this.#options[Math.max(this.#at, 0)][0];
        const whole = this.#field.value === `/${name}`;
        this.#field.value = `/${name}`;
        this.#offer([]);
        this.#send.disabled = false;
        if (key === 'Enter' && whole) this.submit(); // a partial command is completed, not run
        return true;
      }
    }
    return false;
  }

  #offer(options) {
    this.#options = options;
    this.#at = -1;
    this.#list.hidden = !options.length;
    this.#field.setAttribute('aria-expanded', String(options.length > 0));
    this.#field.removeAttribute('aria-activedescendant');
    fill(this.#list, options.map(([name, help], i) => el('li', {
      role: 'option', id: `command-${name}`, 'aria-selected': 'false',
      on: { pointerdown: (e) => { e.preventDefault(); this.#field.value = `/${name}`; this.#offer([]); this.submit(); }, pointermove: () => this.#at !== i && this.#mark(i) },
    }, el('span', { class: 'mono' }, `/${name}`), el('span', { class: 'muted clip' }, help))));
    if (options.length) this.#mark(0);
  }

  #mark(at) {
    this.#at = at;
    [...this.#list.children].forEach((li, i) => li.setAttribute('aria-selected', String(i === at)));
    const marked = this.#list.children[at];
    marked?.scrollIntoView({ block: 'nearest' });
    if (marked) this.#field.setAttribute('aria-activedescendant', marked.id);
  }
}
