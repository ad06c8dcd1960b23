// The keyboard shortcuts and their list. Letters with Alt are matched by physical key,
// not by layout.

import { el, iconButton } from './dom.js';

const LIST = [
  ['In the input field', [
    [['Enter'], 'Send'],
    [['Shift', 'Enter'], 'New line'],
    [['Ctrl', 'Enter'], 'Interrupt the running turn, and send'],
    [['↑'], 'Your earlier inputs (in an empty field)'],
    [['/'], 'Commands, with completion; Tab accepts one'],
  ]],
  ['On the microphone button', [
    [['Space'], 'Hold to talk, or press to start and to stop'],
    [['Esc'], 'Drop what you have said, or stop reading aloud'],
  ]],
  ['Everywhere', [
    [['Esc', 'Esc'], 'Cancel the running turn'],
    [['Alt', 'A'], 'Go to the waiting decision'],
    [['/'], 'Go to the input field'],
    [['Ctrl', 'K'], 'Find a session'],
    [['Alt', 'N'], 'New session'],
    [['Alt', '↑'], 'Previous session'],
    [['Alt', '↓'], 'Next session'],
    [['Alt', '1…6'], 'Events, Timeline, Tools, Plugins, Memory, System'],
    [['Alt', '7'], 'Audit, with the right to administer'],
    [['Alt', '0'], 'Open or close the panel'],
    [['?'], 'This list'],
  ]],
];

const TWICE = 900; // ms within which a second Esc counts as Esc Esc

// shortcuts installs the shortcuts and sets app.help.
export function shortcuts(app) {
  const dialog = el('dialog', { class: 'help', 'aria-labelledby': 'help-title' },
    el('header', { class: 'dialog-head' }, el('h2', { id: 'help-title' }, 'Keyboard shortcuts'), iconButton('close', 'Close', () => dialog.close())),
    el('div', { class: 'help-body' }, LIST.map(([title, rows]) => el('section', null, el('h3', null, title),
      el('dl', null, rows.map(([keys, what]) => el('div', { class: 'help-row' }, el('dt', null, keys.map((k, i) => [i > 0 && ' ', el('kbd', null, k)])), el('dd', null, what))))))));
  dialog.addEventListener('click', (e) => e.target === dialog && dialog.close());
  document.body.append(dialog);
  app.help = () => dialog.open || dialog.showModal();

  let escaped = -Infinity;
  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.isComposing || dialog.open) return;
    if (event.key === 'Escape') {
      if (app.shell.dismiss()) return;
      const again = event.timeStamp - escaped < TWICE;
      escaped = again ? -Infinity : event.timeStamp;
      app.conversation.escape(again);
      return;
    }
    const action = find(event, app);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function find(event, app) {
  const typing = event.target.closest?.('input, textarea, select, [contenteditable]');
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.code === 'KeyK') return () => app.sessions.focusSearch();
  if (event.altKey && !event.ctrlKey && !event.metaKey) {
    switch (event.code) {
      case 'KeyA': return () => app.conversation.focusDecision();
      case 'KeyN': return () => app.newSession();
      case 'ArrowUp': return () => app.sessions.step(-1);
      case 'ArrowDown': return () => app.sessions.step(1);
      case 'Digit0': return () => app.panel.toggle();
      case 'Digit1': return () => app.panel.show('events');
      case 'Digit2': return () => app.panel.show('timeline');
      case 'Digit3': return () => app.panel.show('tools');
      case 'Digit4': return () => app.panel.show('plugins');
      case 'Digit5': return () => app.panel.show('memory');
      case 'Digit6': return () => app.panel.show('system');
      case 'Digit7': return app.can('administer') ? () => app.panel.show('audit') : null;
    }
    return null;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return null;
  if (event.key === '?') return app.help;
  if (event.key === '/') return () => app.conversation.focus();
  return null;
}
