// JSON exactly as it was sent, for decisions. JSON.parse and stringify would round large
// numbers and drop the first of two fields with the same name; this code keeps the
// tokens.

// tokens yields the tokens of a JSON text: {kind: "{" "}" "[" "]" ":" "," "string" "other",
// text, at}.
function* tokens(raw, from = 0) {
  const token = /[ \t\n\r]*(?:([{}[\]:,])|("(?:[^"\\]|\\.)*")|([^\s{}[\]:,"]+))/gys;
  token.lastIndex = from;
  for (let m = token.exec(raw); m; m = token.exec(raw)) {
    const text = m[1] ?? m[2] ?? m[3];
    yield { kind: m[1] ?? (m[2] ? 'string' : 'other'), text, at: token.lastIndex - text.length, end: token.lastIndex };
  }
}

// field returns the text of a value inside a JSON text, by its path of names and
// indices, or ''. Of two fields with the same name the last counts, as it does for
// readers.
export function field(raw, path) {
  let text = raw;
  for (const name of path) {
    text = member(text, name);
    if (!text) return '';
  }
  return text;
}

function member(raw, name) {
  let depth = 0;
  let found = '';
  let index = 0;
  let key = null;
  let start = -1;
  let array = false;
  const matches = () => (array ? index === name : key === name);
  for (const t of tokens(raw)) {
    const closes = t.kind === '}' || t.kind === ']';
    if (depth === 1 && start >= 0 && (t.kind === ',' || closes)) {
      if (matches()) found = raw.slice(start, t.at).trim();
      start = -1;
    }
    if (closes) depth--;
    else if (depth === 1) {
      if (t.kind === ',') { index++; key = null; } else if (t.kind === ':') start = t.end;
      else if (!array && start < 0 && t.kind === 'string') key = JSON.parse(t.text);
      else if (array && start < 0) start = t.at;
    }
    if (t.kind === '{' || t.kind === '[') {
      if (depth === 0) array = t.kind === '[';
      depth++;
    }
  }
  return found;
}

// fields returns an object's names with their values as the JSON texts that were sent.
// It returns null if the text is not an object, or if some readers could take two names
// for the same.
export function fields(raw) {
  if (!raw.trimStart().startsWith('{')) return null;
  const out = [];
  let depth = 0;
  let key = null;
  let start = -1;
  for (const t of tokens(raw)) {
    if (t.kind === '}' || t.kind === ']') depth--;
    if ((depth === 1 && t.kind === ',') || (depth === 0 && t.kind === '}')) {
      if (key !== null) out.push({ name: key, raw: raw.slice(start, t.at).trim() });
      key = null;
    } else if (depth === 1 && t.kind === ':') start = t.end;
    else if (depth === 1 && key === null && t.kind === 'string') key = JSON.parse(t.text);
    if (t.kind === '{' || t.kind === '[') depth++;
  }
  return new Set(out.map((f) => f.name.toLowerCase())).size === out.length ? out : null;
}

// object writes fields exactly as they were sent.
export function object(list) { return `{${list.map((f) => `${JSON.stringify(f.name)}:${f.raw}`).join(',')}}`; }

// pretty indents a JSON text. Numbers and the order of fields do not change; strings
// have only the necessary escapes.
export function pretty(raw) {
  let out = '';
  let depth = 0;
  let before = '';
  const line = () => `\n${'  '.repeat(depth)}`;
  for (const t of tokens(raw)) {
    switch (t.kind) {
      case '{': case '[':
        if (before === '{' || before === '[' || before === ',') out += line();
        out += t.text;
        depth++;
        break;
      case '}': case ']':
        depth--;
        if (before !== '{' && before !== '[') out += line();
        out += t.text;
        break;
      case ',': out += ','; break;
      case ':': out += ': '; break;
      default:
        if (before === '{' || before === '[' || before === ',') out += line();
        out += t.kind === 'string' ? string(t.text) : t.text;
    }
    before = t.kind;
  }
  return out;
}

function string(literal) {
  try {
    return JSON.stringify(JSON.parse(literal));
  } catch {
    return literal;
  }
}
