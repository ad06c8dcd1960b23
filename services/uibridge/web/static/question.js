// The second step of an operation that needs two: what it will do, a button that does it, and Cancel.

import { el, fill, icon } from './dom.js';
import { reveal } from './reveal.js';
import { refusal } from './words.js';

// Question is the place of the second step, hidden until there is one.
export class Question {
  #back = () => {};

  constructor() {
    this.node = el('div', { class: 'plugin-ask', role: 'group', hidden: true });
  }

  // op is the operation in question, '' if there is none.
  get op() { return this.node.dataset.op ?? ''; }

  // ask shows the step: {op, label, text, field, sure, tone, run, done, again, back}. sure is the text of the button,
  // which calls run, and done if that succeeds. If it fails, the step stays, with what was typed and the error, or as
  // again(error) changes it. text and field are optional; back takes the focus after Cancel.
  ask(step) {
    const { field } = step;
    const go = el('button', { type: 'button', class: `btn btn-small ${step.tone}`, on: { click: () => this.#run(step) } }, step.sure);
    this.#back = step.back;
    this.node.dataset.op = step.op;
    this.node.setAttribute('aria-label', step.label);
    fill(this.node, step.text && el('p', { class: 'small' }, step.text), field,
      el('div', { class: 'row' }, go, el('button', { type: 'button', class: 'btn btn-small btn-quiet', on: { click: () => this.cancel() } }, 'Cancel')));
    this.node.hidden = false;
    this.node.onkeydown = (e) => {
      if (e.key === 'Escape') { e.stopPropagation(); this.cancel(); }
      if (e.key === 'Enter' && e.target === field && (field.matches('input') || e.ctrlKey || e.metaKey)) go.click();
    };
    (field ?? go).focus();
  }

  // fail shows the error of an operation, above its step if it has one.
  fail(e) {
    this.node.hidden = false;
    this.node.querySelector('.note')?.remove();
    this.node.prepend(el('p', { class: 'note note-danger', role: 'alert' }, icon('warn'), el('span', null, reveal(refusal(e)))));
  }

  // close hides the step.
  close() {
    delete this.node.dataset.op;
    this.node.hidden = true;
    this.node.replaceChildren();
  }

  // cancel is close, and gives the focus back.
  cancel() {
    this.close();
    this.#back();
  }

  async #run(step) {
    const controls = this.node.querySelectorAll('button, input, textarea');
    for (const c of controls) c.disabled = true;
    try {
      await step.run();
    } catch (e) {
      const other = step.again?.(e);
      if (other) this.ask({ ...step, ...other });
      else for (const c of controls) c.disabled = false;
      this.fail(e);
      return;
    }
    this.close();
    await step.done();
  }
}
