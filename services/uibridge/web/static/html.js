// The only place where text becomes HTML. The server has rendered and sanitised it. Here
// it is parsed in a template, where nothing runs or loads, and everything not on a list
// is removed again, so that a bug on one side alone does no harm. The content policy
// enforces this: it allows only the Trusted Types policy below.

import { isFile, picture } from './files.js';

const policy = window.trustedTypes?.createPolicy('skandha', { createHTML: (html) => html });

const TAGS = new Set((
  'a abbr b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i img input ins kbd li mark ol p pre q s samp ' +
  'section small span strong sub summary sup table tbody td tfoot th thead tr u ul var'
).split(' '));
const ATTRIBUTES = {
  '*': ['class', 'title', 'dir', 'lang'],
  a: ['href'], img: ['src', 'alt', 'width', 'height'], input: ['type', 'checked', 'disabled'],
  ol: ['start', 'reversed'], td: ['align', 'colspan', 'rowspan'], th: ['align', 'colspan', 'rowspan', 'scope'], details: ['open'],
};

// renderHTML replaces the content of node with server-rendered HTML.
export function renderHTML(node, html) {
  const template = document.createElement('template');
  template.innerHTML = policy ? policy.createHTML(html) : html;
  clean(template.content);
  node.replaceChildren(template.content);
}

function clean(parent) {
  for (const node of [...parent.querySelectorAll('*')].reverse()) { // children before their parents
    const tag = node.localName;
    if (!TAGS.has(tag) || node.namespaceURI !== 'http://www.w3.org/1999/xhtml') {
      node.remove();
      continue;
    }
    const allowed = [...ATTRIBUTES['*'], ...(ATTRIBUTES[tag] ?? [])];
    for (const { name } of [...node.attributes]) if (!allowed.includes(name)) node.removeAttribute(name);
    node.className = [...node.classList].filter((c) => /^language-[\w+#.-]{1,30}$/.test(c)).join(' ');
    if (!node.className) node.removeAttribute('class');
    if (tag === 'li' && /^\s*[☐☑] /u.test(node.textContent)) node.className = 'task'; // its checkbox replaces the bullet
    if (tag === 'a') link(node);
    if (tag === 'img') image(node);
    if (tag === 'input') { // in a task list
      if (node.type !== 'checkbox') node.remove();
      else { node.disabled = true; node.setAttribute('aria-label', node.checked ? 'done' : 'to do'); }
    }
    if (tag === 'pre' || tag === 'table') scrolling(node, tag);
  }
}

function link(a) {
  let url = null;
  try {
    url = new URL(a.getAttribute('href') ?? '', document.baseURI);
  } catch {
    // Not an address: only its text is kept.
  }
  if (!url || !['http:', 'https:', 'mailto:'].includes(url.protocol)) {
    a.removeAttribute('href');
    return;
  }
  if (url.origin === location.origin) {
    // Text of the agent must not navigate this page; only its own files may be opened.
    if (!isFile(url)) { a.removeAttribute('href'); return; }
  }
  a.target = '_blank';
  a.rel = 'noopener noreferrer nofollow';
  a.referrerPolicy = 'no-referrer';
  if (!a.title) a.title = url.href;
}

function image(img) {
  let url = null;
  try {
    url = new URL(img.getAttribute('src') ?? '', document.baseURI);
  } catch {
    // Removed below.
  }
  const lost = () => img.replaceWith(document.createTextNode(img.alt ? `[picture: ${img.alt}]` : '[picture]'));
  if (!url || !isFile(url)) return lost(); // nothing is fetched from elsewhere: an address could leak what the agent knows
  img.removeAttribute('src');
  img.decoding = 'async';
  return picture(img, url.href, lost);
}

// Content wider than the column can be scrolled with the keyboard.
function scrolling(node, tag) {
  node.tabIndex = 0;
  if (tag !== 'pre') return;
  node.setAttribute('role', 'group');
  node.setAttribute('aria-label', 'Code');
}
