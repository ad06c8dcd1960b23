// The audit log, for those who may administer: who did what, the latest first, and whether the chain is intact.

import { el, fill, icon } from './dom.js';
import { exact, time } from './fmt.js';
import { every, failure, field, old } from './facts.js';
import { pages } from './pages.js';
import { reveal } from './reveal.js';

const REFRESH = 5000; // ms
const PAGE = 50;
const TYPED = 400; // ms after the last key until it is looked for
const VERBS = {
  'Approvals': ['requested', 'approved', 'refused', 'expired', 'denied'],
  'Sessions': ['asked', 'commanded', 'executed', 'cancelled', 'locked', 'reset'],
  'Plugins and identities': ['registered', 'unregistered', 'lost', 'suspended', 'resumed', 'unloaded', 'invited', 'rotated', 'revoked'],
  'Changes by people': ['remembered', 'corrected', 'forgotten', 'unscheduled', 'resent', 'dropped', 'rewritten', 'switched', 'configured', 'failed'],
  'The logs': ['renewed', 'damaged'],
};
const TONES = { approved: 'ok', refused: 'warn', denied: 'warn', revoked: 'warn', lost: 'warn', failed: 'warn', damaged: 'danger' };

// mount puts the audit log into root, an empty tab panel.
export function mount(root, app) {
  let many = PAGE;
  let asked = 0;
  let drawn = false;
  let timer = 0;
  let verify = true; // once, when it is opened
  const note = el('div');
  const chain = el('div', { class: 'audit-chain', role: 'status' });
  const list = el('ol', { class: 'cards', reversed: true, 'aria-label': 'Audit entries, the latest first' });
  const empty = el('p', { class: 'empty', hidden: true }, 'No entry matches.');
  const more = el('div', { class: 'ins-more', hidden: true }, el('button', { type: 'button', class: 'btn btn-small', on: { click: () => { many += PAGE; load(); } } }, 'Show more'));

  const load = async () => {
    clearTimeout(timer);
    const mine = ++asked;
    const about = { by: by.value.trim(), verb: verb.value, verify, ...(where.value && app.session()) };
    try {
      const got = await pages(app.rpc, 'listAudit', about, { list: 'lines', cursor: 'before', many, most: 200, latest: true });
      if (mine === asked) draw(got);
    } catch (e) {
      if (mine === asked) fill(note, drawn ? old(e) : failure(e, load));
    }
  };
  const restart = () => { many = PAGE; load(); };
  const typed = (ms) => { clearTimeout(timer); timer = setTimeout(restart, ms); };

  const draw = ({ rows, next, first, last, damage, verified }) => {
    drawn = true;
    note.replaceChildren();
    if (verified || damage || !last) {
      verify = false;
      fill(chain, state({ first, last, damage }), el('button', { type: 'button', class: 'btn btn-small', on: { click: () => { verify = true; load(); } } }, 'Verify again'));
    }
    fill(list, rows.map(parsed).sort((a, b) => b.n - a.n).map(card));
    empty.hidden = rows.length > 0;
    more.hidden = !next;
  };

  const by = el('input', { type: 'search', class: 'input', placeholder: 'By anybody', autocomplete: 'off', spellcheck: 'false', on: { input: () => typed(TYPED), keydown: (e) => e.key === 'Enter' && typed(0) } });
  const verb = el('select', { class: 'input', on: { change: restart } }, el('option', { value: '' }, 'Everything'),
    Object.entries(VERBS).map(([label, verbs]) => el('optgroup', { label }, verbs.map((v) => el('option', { value: v }, v)))));
  const where = el('select', { class: 'input', on: { change: restart } }, el('option', { value: '' }, 'Everywhere'), el('option', { value: 'session' }, 'In this session'));
  root.classList.add('ins', 'ins-audit');
  root.append(
    el('div', { class: 'ins-head' }, el('h2', { class: 'visually-hidden' }, 'Audit log'), field('Who did it', by),
      el('div', { class: 'row' }, field('What was done', verb), field('Where', where)), chain),
    note, empty, list, more);
  every(root, REFRESH, load);
  app.onSession(() => where.value && !root.hidden && restart());
}

// parsed reads an entry as it was written.
function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return { n: 0, verb: 'damaged', by: { kind: 'core', name: 'unknown' }, detail: 'This entry cannot be read.' };
  }
}

// state says whether the chain is intact.
function state({ first, last, damage }) {
  if (damage) return el('p', { class: 'note note-danger' }, icon('warn'), el('span', null, 'The log was damaged: ', reveal(damage)));
  if (!last) return el('p', { class: 'muted small' }, 'Nothing was audited yet.');
  return el('p', { class: 'row small' }, el('span', { class: 'chip chip-ok' }, icon('check'), 'intact'),
    el('span', { class: 'muted', title: `Digest of entry ${last.n}: ${last.digest}` }, `verified: entries ${first} to ${last.n}, each with the digest of the one before`));
}

function card(e) {
  const tone = TONES[e.verb];
  return el('li', { class: 'card audit-card', value: e.n },
    el('div', { class: 'row' }, el('h3', { class: 'clip' }, reveal(e.by.name), e.by.from && ['/', reveal(e.by.from)]),
      el('span', { class: tone ? `chip chip-${tone}` : 'chip' }, e.verb), el('span', { class: 'grow' }),
      el('span', { class: 'faint tiny', title: exact(e.time) }, time(e.time))),
    (e.what || e.call) && el('p', { class: 'small mono clip' }, reveal(e.what || e.call)),
    e.detail && el('p', { class: 'muted small' }, reveal(e.detail)),
    el('p', { class: 'faint tiny' }, `${e.n} · ${e.by.kind}`, e.by.via && [' via ', reveal(e.by.via)], e.session && [' · ', reveal(`${e.agent}/${e.session}`)]));
}
