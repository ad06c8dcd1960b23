// The view of an empty session: three examples to try.

import { el } from './dom.js';

const TRIES = [
  ['what is 12*(3+4), and what time is it in Tokyo?', 'Two tools at once. Each call can be opened.', ['math:evaluate', 'time:now']],
  ['use http:request {"method": "GET", "url": "https://example.com/"}', 'This would leave your machine, so you are asked first. Refuse it, and see how the agent reacts.', ['http:request']],
  ['compute the first 20 primes with Python and save them to primes.txt', 'Code, in a sandbox that cannot reach your files.', ['python:execute']],
  ['write hello to hello.txt', 'A file, in the agent’s own workspace. Then delete it (“delete hello.txt”): that cannot be undone, so you are asked first.', ['file_system:write_file', 'file_system:delete_file']],
  ['remember that the key is under the mat', 'A note that outlives the session.', ['notes:add']],
];

// welcome returns the view, with examples for the available tools.
export function welcome(app) {
  const list = el('ul', { class: 'tries' });
  const draw = (offered) => {
    const found = TRIES.filter(([, , tools]) => !offered || tools.every((t) => offered.has(t))).slice(0, 3);
    list.replaceChildren(...found.map(([text, why]) => el('li', null, el('button', { class: 'try card', type: 'button', on: { click: () => app.conversation.use(text) } },
      el('span', { class: 'try-text' }, text), el('span', { class: 'small muted' }, why)))));
  };
  draw(null);
  app.rpc.call('listTools').then((tools) => draw(new Set((tools ?? []).filter((t) => t.live).map((t) => t.name)))).catch(() => {}); // on failure all examples may be shown
  return el('section', { class: 'welcome', 'aria-labelledby': 'welcome-title' },
    el('h2', { id: 'welcome-title' }, 'What can I do for you?'),
    el('p', { class: 'muted' }, 'You see what the agent thinks and which tools it uses. It asks before it does anything that cannot be undone or that leaves this machine. Without a language model, built-in rules answer; they know these examples:'),
    list,
    el('p', { class: 'small muted' }, el('kbd', null, '/'), ' lists the commands, ', el('kbd', null, '?'), ' the keyboard shortcuts.'));
}
