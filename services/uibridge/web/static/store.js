// What the page stores in the browser. Storage may be forbidden or full; then nothing
// is remembered, and everything else works.

const PREFIX = 'skandha.';

// recall returns the value of the key, or otherwise.
export function recall(key, otherwise) {
  try {
    const text = localStorage.getItem(PREFIX + key);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}

// remember stores a JSON value; undefined removes it.
export function remember(key, value) {
  try {
    if (value === undefined) localStorage.removeItem(PREFIX + key);
    else localStorage.setItem(PREFIX + key, JSON.stringify(value));
  } catch {
    // Then it lasts only until the page is closed.
  }
}
