// Formatting. Times are ISO strings or Dates, durations are milliseconds, sizes are
// bytes.

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const clockSeconds = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const dayAndClock = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

function date(t) {
  const d = t instanceof Date ? t : new Date(t);
  return Number.isNaN(d.getTime()) || d.getTime() <= 0 ? null : d;
}

// time formats the time of day, with the date unless it is today; '' if there is none.
export function time(t) {
  const d = date(t);
  if (!d) return '';
  return d.toDateString() === new Date().toDateString() ? clock.format(d) : dayAndClock.format(d);
}

// exact formats the date and time to the second, for tooltips.
export function exact(t) {
  const d = date(t);
  return d ? full.format(d) : '';
}

// timeSeconds formats the time of day to the second.
export function timeSeconds(t) {
  const d = date(t);
  return d ? clockSeconds.format(d) : '';
}

// ago formats how long ago a time was.
export function ago(t, now = Date.now()) {
  const d = date(t);
  if (!d) return '';
  const s = Math.max(0, (now - d.getTime()) / 1000);
  if (s < 45) return 'now';
  if (s < 3600) return `${Math.max(1, Math.round(s / 60))} min`;
  if (s < 86400) return `${Math.round(s / 3600)} h`;
  if (s < 86400 * 14) return `${Math.round(s / 86400)} d`;
  return new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' }).format(d);
}

// duration formats milliseconds at a sensible precision: 0.4 ms, 38 ms, 1.4 s, 2 min 5 s.
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(Number(ms))) return '';
  const n = Number(ms);
  if (n < 0) return '';
  if (n < 1) return `${n.toFixed(n === 0 ? 0 : n < 0.1 ? 2 : 1)} ms`;
  if (n < 1000) return `${Math.round(n)} ms`;
  if (n < 59950) return `${(n / 1000).toFixed(n < 9950 ? 1 : 0)} s`;
  const s = Math.round(n / 1000);
  if (s < 3600) return s % 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${s / 60} min`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

// bytes formats a size: 512 B, 1.2 KB, 34 MB.
export function bytes(n) {
  if (n === null || n === undefined) return '';
  let v = Number(n);
  for (const unit of ['B', 'KB', 'MB', 'GB']) {
    if (v < 1000 || unit === 'GB') return `${unit === 'B' || v >= 9.95 ? Math.round(v) : v.toFixed(1)} ${unit}`;
    v /= 1000;
  }
  return '';
}

// json formats a value as indented JSON. It parses a string that is JSON first.
export function json(value) {
  if (typeof value === 'string') {
    try {
      value = JSON.parse(value);
    } catch {
      return value;
    }
  }
  return JSON.stringify(value, null, 2) ?? '';
}

// count formats a number with its noun: 1 call, 3 calls.
export function count(n, one, many = `${one}s`) {
  return `${n} ${n === 1 ? one : many}`;
}
