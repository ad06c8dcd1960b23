// Simple syntax highlighting: comments, strings, numbers, keywords. It parses no
// language properly and breaks none, since it only wraps pieces of the text.

import { el } from './dom.js';

const words = (s) => new Set(s.split(' '));
const LANGUAGES = {
  python: { line: '#', triple: true, keywords: words('and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield match case') },
  js: { line: '//', block: true, tick: true, keywords: words('async await break case catch class const continue default delete do else export extends false finally for from function if import in instanceof interface let new null of return static super switch this throw true try type typeof undefined var void while yield') },
  go: { line: '//', block: true, tick: true, keywords: words('break case chan const continue default defer else fallthrough false for func go goto if import interface iota map nil package range return select struct switch true type var') },
  c: { line: '//', block: true, keywords: words('auto bool break case char class const continue default do double else enum extern false float for fn if impl int let long match mut namespace new null nullptr private pub public return short static string struct switch template this true typedef unsigned use using virtual void while') },
  sh: { line: '#', keywords: words('case cd do done echo elif else esac exit export fi for function if in local read return set then until while') },
  json: { keywords: words('true false null') },
  yaml: { line: '#', keywords: words('true false null yes no') },
  sql: { line: '--', keywords: words('select from where and or not in is null insert into values update set delete create table index join left right inner outer on group by order limit as distinct having union SELECT FROM WHERE AND OR NOT IN IS NULL INSERT INTO VALUES UPDATE SET DELETE CREATE TABLE INDEX JOIN LEFT RIGHT INNER OUTER ON GROUP BY ORDER LIMIT AS DISTINCT HAVING UNION') },
};
const ALIASES = { py: 'python', python3: 'python', javascript: 'js', ts: 'js', typescript: 'js', jsx: 'js', tsx: 'js', golang: 'go', bash: 'sh', shell: 'sh', zsh: 'sh', console: 'sh', java: 'c', cpp: 'c', 'c++': 'c', rust: 'c', rs: 'c', csharp: 'c', yml: 'yaml', toml: 'yaml', jsonc: 'json' };
const LONGEST = 60_000; // longer code is not highlighted: too slow

// highlight returns the code as nodes for el; code in an unknown language stays plain.
export function highlight(code, language) {
  const lang = LANGUAGES[ALIASES[language] ?? language];
  if (!lang || code.length > LONGEST) return [code];
  const out = [];
  let plain = '';
  let at = 0;
  for (const m of code.matchAll(pattern(lang))) {
    const kind = m[1] ? 'comment' : m[2] ? 'string' : m[3] ? 'number' : lang.keywords.has(m[0]) ? 'keyword' : '';
    if (!kind) continue;
    plain = code.slice(at, m.index);
    if (plain) out.push(plain);
    out.push(el('span', { class: `tok-${kind}` }, m[0]));
    at = m.index + m[0].length;
  }
  if (at < code.length) out.push(code.slice(at));
  return out;
}

function pattern(lang) {
  lang.pattern ??= new RegExp([
    `(${[lang.line && `${lang.line === '#' ? '(?<![\\w$])#' : lang.line}[^\\n]*`, lang.block && '/\\*[\\s\\S]*?\\*/'].filter(Boolean).join('|') || '(?!)'})`,
    `(${[lang.triple && '"""[\\s\\S]*?"""|\'\'\'[\\s\\S]*?\'\'\'', '"(?:[^"\\\\\\n]|\\\\.)*"', lang !== LANGUAGES.json && "'(?:[^'\\\\\\n]|\\\\.)*'", lang.tick && '`[^`]*`'].filter(Boolean).join('|')})`,
    '(\\b\\d[\\w.]*\\b)',
    '\\b[A-Za-z_]\\w*\\b',
  ].join('|'), 'g');
  return lang.pattern;
}

// languageOf returns the language that a code element of rendered Markdown names, or ''.
export function languageOf(code) {
  for (const c of code.classList) if (c.startsWith('language-')) return c.slice(9).toLowerCase();
  return '';
}
