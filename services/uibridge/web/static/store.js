// What the browser remembers for the page. Storage may be forbidden or full; then
// nothing is remembered, and everything else goes on.

const PREFIX = 'skandha.';

// recall is what was remembered under the key, or otherwise.
export function recall(key, otherwise) {
  try {
    const text = localStorage.getItem(PREFIX + key);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

// remember keeps a value that JSON can carry; undefined forgets it.
export function remember(key, value) {
  try {
    if (value === undefined) localStorage.removeItem(PREFIX + key);
    else localStorage.setItem(PREFIX + key, JSON.stringify(value));
  } catch {
    // It holds for this page then.
  }
}
