// Safe builders for the page. Text becomes text nodes, attributes are checked, and
// nothing here parses HTML. Server-rendered HTML goes only through html.js.

const SVG = 'http://www.w3.org/2000/svg';
const SVG_TAGS = new Set(['svg', 'path', 'g', 'line', 'rect', 'circle', 'polyline', 'polygon', 'text', 'title', 'defs', 'pattern']);

// el creates an element.
//
//   el('button', {class: 'btn', type: 'button', on: {click: f}}, 'Approve')
//   el('div', {style: {'--left': '12%'}, dataset: {turn: '7'}, hidden: true})
//
// attrs may be null. A value of null, undefined or false leaves the attribute out, true
// sets it empty. `on` has listeners, `style` has CSS properties (set one by one, which the
// content policy allows), `dataset` has data attributes. Attributes that begin with "on",
// "style" as text, "srcdoc", and links to anything but http(s), mailto and this server are refused.
// Children are nodes, texts, numbers, or arrays of them; null, undefined and false are left out.
export function el(tag, attrs, ...children) {
  return build(document.createElement(tag), attrs, children);
}

// svg is el for SVG elements.
export function svg(tag, attrs, ...children) {
  if (!SVG_TAGS.has(tag)) throw new Error(`svg: unsupported element ${tag}`);
  return build(document.createElementNS(SVG, tag), attrs, children);
}

function build(node, attrs, children) {
  for (const [name, value] of Object.entries(attrs ?? {})) set(node, name, value);
  add(node, children);
  return node;
}

function set(node, name, value) {
  switch (name) {
    case 'on':
      for (const [type, listener] of Object.entries(value)) node.addEventListener(type, listener);
      return;
    case 'style':
      for (const [property, v] of Object.entries(value)) node.style.setProperty(property, v);
      return;
    case 'dataset':
      for (const [key, v] of Object.entries(value)) node.dataset[key] = v;
      return;
  }
  if (value === null || value === undefined || value === false) return;
  const lower = name.toLowerCase();
  if (lower.startsWith('on') || lower === 'srcdoc') throw new Error(`el: the attribute ${name} is not allowed`);
  if ((lower === 'href' || lower === 'src' || lower === 'action') && !safeURL(String(value))) {
    throw new Error(`el: ${name} is ${String(value).slice(0, 40)}, want an address of this server, http(s) or mailto`);
  }
  node.setAttribute(name, value === true ? '' : String(value));
}

// safeURL reports whether an address may be linked to or shown.
export function safeURL(address) {
  try {
    const u = new URL(address, document.baseURI);
    return u.protocol === 'http:' || u.protocol === 'https:' || u.protocol === 'mailto:';
  } catch {
    return false;
  }
}

// add appends children to a node, in the forms that el takes.
export function add(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

// fill replaces the content of a node.
export function fill(node, ...children) {
  node.replaceChildren();
  return add(node, ...children);
}

// The icons of the page: 16 × 16, in the text's colour.
const ICONS = {
  plus: 'M8 3v10M3 8h10',
  close: 'M4 4l8 8M12 4l-8 8',
  menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11',
  panel: 'M2.5 3.5h11v9h-11zM9.5 3.5v9',
  search: 'M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5l3 3',
  stop: 'M4.5 4.5h7v7h-7z',
  send: 'M8 13V3.5M4 7.5l4-4 4 4',
  check: 'M3 8.5l3.2 3.2L13 4.8',
  chevron: 'M6 3.5L10.5 8 6 12.5',
  down: 'M8 3v10M4 9l4 4 4-4',
  sun: 'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9',
  moon: 'M13 9.6A5.5 5.5 0 1 1 6.4 3a4.4 4.4 0 0 0 6.6 6.6z',
  copy: 'M5.5 5.5h7v7h-7zM3.5 10.5v-7h7',
  file: 'M4 2.5h5l3 3v8H4zM9 2.5v3h3',
  image: 'M2.5 3.5h11v9h-11zM2.5 10.5l3-3 3 3 2-2 3 3M10.5 6.2h.01',
  lock: 'M4 7.5h8v6H4zM5.5 7.5V5.2a2.5 2.5 0 0 1 5 0v2.3',
  out: 'M6.5 3h-3v10h3M7 8h6M10.5 5.5L13 8l-2.5 2.5',
  warn: 'M8 2.5l6 10.5H2zM8 6.5v3M8 11.3h.01',
  info: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 7.2v4M8 4.9h.01',
  clock: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.8V8l2.2 1.6',
  keyboard: 'M1.5 4.5h13v7h-13zM4 7h.01M6.7 7h.01M9.3 7h.01M12 7h.01M5 9.3h6',
  mic: 'M8 10a2.2 2.2 0 0 0 2.2-2.2V4.2a2.2 2.2 0 0 0-4.4 0v3.6A2.2 2.2 0 0 0 8 10zM3.8 7.8a4.2 4.2 0 0 0 8.4 0M8 12v2M6 14h4',
  camera: 'M1.8 4.5h8.4v7H1.8zM10.2 7l4-2v6l-4-2',
  speaker: 'M2.5 6.2h2L8 3.4v9.2L4.5 9.8h-2zM10.3 5.9a3 3 0 0 1 0 4.2M12.2 4a5.7 5.7 0 0 1 0 8',
  pulse: 'M1.5 8.5h3l2-5 3 9 2-4h3',
};

// icon returns an icon that is hidden from screen readers: its container has a label.
export function icon(name) {
  if (!ICONS[name]) throw new Error(`icon: unknown icon ${name}`);
  return svg('svg', {
    class: 'icon', viewBox: '0 0 16 16', width: 16, height: 16, fill: 'none', stroke: 'currentColor',
    'stroke-width': 1.5, 'stroke-linecap': 'round', 'stroke-linejoin': 'round', 'aria-hidden': 'true', focusable: 'false',
  }, svg('path', { d: ICONS[name] }));
}

// iconButton returns a button with only an icon, and a label for screen readers.
export function iconButton(name, label, click, attrs = {}) {
  return el('button', { type: 'button', class: 'icon-btn', 'aria-label': label, title: label, on: { click }, ...attrs }, icon(name));
}
