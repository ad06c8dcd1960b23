// Unambiguous text, for decisions: characters that are invisible, or that change how
// other text looks, are shown as code points.

import { el } from './dom.js';

// Controls but line feed and tab; format characters (bidi controls, zero width, tags,
// soft hyphen, byte order mark); separators but the plain space; lone surrogates;
// variation selectors, private use, and letters that are drawn as nothing.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;
const PLAIN = new Set(['\n', '\t']);

const NAMES = {
  0x00: 'null', 0x07: 'bell', 0x08: 'backspace', 0x0d: 'carriage return', 0x1b: 'escape', 0x7f: 'delete', 0xa0: 'no-break space', 0xad: 'soft hyphen',
  0x061c: 'Arabic letter mark', 0x200b: 'zero width space', 0x200c: 'zero width non-joiner', 0x200d: 'zero width joiner', 0x200e: 'left-to-right mark',
  0x200f: 'right-to-left mark', 0x2028: 'line separator', 0x2029: 'paragraph separator', 0x202a: 'left-to-right embedding',
  0x202b: 'right-to-left embedding', 0x202c: 'pop directional formatting', 0x202d: 'left-to-right override', 0x202e: 'right-to-left override',
  0x2060: 'word joiner', 0x2066: 'left-to-right isolate', 0x2067: 'right-to-left isolate', 0x2068: 'first strong isolate', 0x2069: 'pop directional isolate',
  0x3000: 'ideographic space', 0xfeff: 'byte order mark',
};

// codePoint formats a character as U+202E.
export function codePoint(c) {
  return `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
}

// countUnseen returns how many characters of a text reveal would show as code points.
export function countUnseen(text) {
  let n = 0;
  for (const m of text.matchAll(UNSEEN)) if (!PLAIN.has(m[0])) n++;
  return n;
}

// reveal returns the text as nodes for el.
export function reveal(text) {
  const out = [];
  let from = 0;
  for (const m of text.matchAll(UNSEEN)) {
    if (PLAIN.has(m[0])) continue;
    if (m.index > from) out.push(text.slice(from, m.index));
    const name = NAMES[m[0].codePointAt(0)];
    out.push(el('span', { class: 'unseen', title: name ?? 'an invisible character' }, codePoint(m[0])));
    from = m.index + m[0].length;
  }
  if (from < text.length) out.push(text.slice(from));
  return out;
}

// oneLine puts the text on one line, for summaries.
export function oneLine(text, most = 160) {
  const line = text.replace(/\s+/g, ' ').trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}
