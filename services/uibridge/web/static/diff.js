// A line diff, by Myers' algorithm.

const MOST_EDITS = 1500; // beyond it, a diff does not help

// diffLines compares two texts by lines: [{op: " " | "-" | "+", text, old, new}], with line
// numbers from 1; null if they differ too much.
export function diffLines(before, after) {
  const a = lines(before);
  const b = lines(after);
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const middle = edits(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  if (!middle) return null;
  const ops = [
    ...a.slice(0, head).map((text) => ({ op: ' ', text })),
    ...middle,
    ...a.slice(a.length - tail).map((text) => ({ op: ' ', text })),
  ];
  let i = 0;
  let j = 0;
  for (const o of ops) {
    if (o.op !== '+') o.old = ++i;
    if (o.op !== '-') o.new = ++j;
  }
  return ops;
}

function lines(text) {
  if (text === '') return [];
  const all = text.split('\n');
  if (all.at(-1) === '') all.pop();
  else all[all.length - 1] += '\u2404'; // marks a last line without a line end; see shown
  return all;
}

// shown removes the mark of a missing line end from a text: [text, whether it had one].
export function shown(text) {
  return text.endsWith('\u2404') ? [text.slice(0, -1), true] : [text, false];
}

function edits(a, b) {
  const most = Math.min(a.length + b.length, MOST_EDITS);
  const v = new Map([[1, 0]]);
  const trace = [];
  for (let d = 0; d <= most; d++) {
    trace.push(new Map(v));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1)) ? v.get(k + 1) : v.get(k - 1) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) { x++; y++; }
      v.set(k, x);
      if (x >= a.length && y >= b.length) return backtrack(trace, a, b);
    }
  }
  return null;
}

function backtrack(trace, a, b) {
  const out = [];
  let x = a.length;
  let y = b.length;
  for (let d = trace.length - 1; d >= 0; d--) {
    const v = trace[d];
    const k = x - y;
    const from = k === -d || (k !== d && (v.get(k - 1) ?? -1) < (v.get(k + 1) ?? -1)) ? k + 1 : k - 1;
    const px = v.get(from) ?? 0;
    const py = px - from;
    while (x > px && y > py) { x--; y--; out.push({ op: ' ', text: a[x] }); }
    if (d > 0) {
      if (x === px) { y--; out.push({ op: '+', text: b[y] }); } else { x--; out.push({ op: '-', text: a[x] }); }
    }
  }
  return out.reverse();
}
