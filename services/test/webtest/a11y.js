// What can be seen to be wrong with a page for people who cannot see it well, use no
// mouse, or need it large. It is evaluated in the page by a11y.go, answers the functions
// audit and walk, and changes nothing. A finding is {rule, where, why}.
(() => {
  const LEAST_TEXT = 4.5;
  const LEAST_LARGE = 3; // of large text, and of what is no text
  const TARGET = 24; // px

  const ROLES = new Set(('alert alertdialog application article banner blockquote button caption cell checkbox code columnheader combobox complementary contentinfo ' +
    'definition deletion dialog document emphasis feed figure form generic grid gridcell group heading img insertion link list listbox listitem log main marquee math menu menubar ' +
    'menuitem menuitemcheckbox menuitemradio meter navigation none note option paragraph presentation progressbar radio radiogroup region row rowgroup rowheader scrollbar search ' +
    'searchbox separator slider spinbutton status strong subscript superscript switch tab table tablist tabpanel term textbox time timer toolbar tooltip tree treegrid treeitem').split(' '));
  const NEEDS = { // what a role must say of itself
    checkbox: ['aria-checked'], switch: ['aria-checked'], radio: ['aria-checked'], option: ['aria-selected'], tab: ['aria-selected', 'aria-controls'], slider: ['aria-valuenow'],
    combobox: ['aria-expanded', 'aria-controls'], heading: ['aria-level'], meter: ['aria-valuenow'], scrollbar: ['aria-valuenow', 'aria-controls'],
  };
  const WITHIN = { // what it must lie in
    tab: ['tablist'], option: ['listbox'], row: ['table', 'grid', 'treegrid', 'rowgroup'], rowgroup: ['table', 'grid', 'treegrid'], gridcell: ['row'], cell: ['row'], columnheader: ['row'],
    rowheader: ['row'], listitem: ['list'], menuitem: ['menu', 'menubar'], treeitem: ['tree'],
  };
  const HOLDS = { tablist: ['tab'], listbox: ['option'], treegrid: ['row', 'rowgroup'], grid: ['row', 'rowgroup'], row: ['gridcell', 'cell', 'columnheader', 'rowheader'], list: ['listitem'] };
  const bool = ['true', 'false'];
  const VALUES = {
    'aria-expanded': bool, 'aria-selected': bool, 'aria-hidden': bool, 'aria-busy': bool, 'aria-atomic': bool, 'aria-modal': bool, 'aria-disabled': bool, 'aria-readonly': bool, 'aria-required': bool,
    'aria-multiselectable': bool, 'aria-multiline': bool, 'aria-pressed': [...bool, 'mixed'], 'aria-checked': [...bool, 'mixed'], 'aria-invalid': [...bool, 'grammar', 'spelling'],
    'aria-live': ['off', 'polite', 'assertive'], 'aria-current': [...bool, 'page', 'step', 'location', 'date', 'time'], 'aria-haspopup': [...bool, 'menu', 'listbox', 'tree', 'grid', 'dialog'],
    'aria-autocomplete': ['none', 'inline', 'list', 'both'], 'aria-orientation': ['horizontal', 'vertical'], 'aria-sort': ['ascending', 'descending', 'none', 'other'], 'aria-relevant': null,
    'aria-label': null, 'aria-description': null, 'aria-roledescription': null, 'aria-keyshortcuts': null, 'aria-placeholder': null, 'aria-valuetext': null, 'aria-valuenow': 'number', 'aria-valuemin': 'number',
    'aria-valuemax': 'number', 'aria-level': 'number', 'aria-setsize': 'number', 'aria-posinset': 'number', 'aria-rowcount': 'number', 'aria-rowindex': 'number', 'aria-colcount': 'number', 'aria-colindex': 'number',
    'aria-colspan': 'number', 'aria-rowspan': 'number', 'aria-labelledby': 'ids', 'aria-describedby': 'ids', 'aria-controls': 'ids', 'aria-owns': 'ids', 'aria-activedescendant': 'ids', 'aria-details': 'ids',
    'aria-errormessage': 'ids', 'aria-flowto': 'ids',
  };
  const ONLY = { // what says something of these roles alone
    'aria-pressed': ['button'], 'aria-selected': ['gridcell', 'option', 'row', 'tab', 'columnheader', 'rowheader', 'treeitem'], 'aria-checked': ['checkbox', 'menuitemcheckbox', 'menuitemradio', 'option', 'radio', 'switch', 'treeitem'],
    'aria-expanded': ['button', 'combobox', 'link', 'row', 'gridcell', 'treeitem', 'tab', 'listbox', 'menuitem', 'checkbox', 'switch', 'columnheader', 'rowheader', 'application'],
    'aria-level': ['heading', 'row', 'treeitem', 'listitem'], 'aria-valuenow': ['slider', 'separator', 'meter', 'progressbar', 'scrollbar', 'spinbutton'],
  };
  const NAMELESS = new Set(['generic', 'paragraph', 'code', 'strong', 'emphasis', 'subscript', 'superscript', 'insertion', 'deletion', 'caption', 'none', 'presentation', 'term', 'definition', 'time']);
  const TAGS = {
    a: 'link', button: 'button', main: 'main', nav: 'navigation', aside: 'complementary', ul: 'list', ol: 'list', li: 'listitem', table: 'table', tr: 'row', td: 'cell', th: 'columnheader', textarea: 'textbox', select: 'combobox',
    summary: 'button', dialog: 'dialog', img: 'img', h1: 'heading', h2: 'heading', h3: 'heading', h4: 'heading', h5: 'heading', h6: 'heading', p: 'paragraph', div: 'generic', span: 'generic', code: 'code', strong: 'strong',
    em: 'emphasis', dt: 'term', dd: 'definition', time: 'time', b: 'generic', i: 'generic', pre: 'generic', section: 'region', form: 'form', details: 'group', thead: 'rowgroup', tbody: 'rowgroup', article: 'article', output: 'status',
  };
  const INPUTS = { checkbox: 'checkbox', radio: 'radio', range: 'slider', search: 'searchbox', number: 'spinbutton', submit: 'button', button: 'button', reset: 'button', image: 'button' };

  // What is looked at: a modal dialog alone, or the page.
  const root = document.querySelector('dialog:modal') ?? document.body;
  const every = (css) => [...root.querySelectorAll(css)].filter(visible);

  function visible(e) { return e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !e.closest('[inert]'); }
  function spoken(e) { return visible(e) && !e.closest('[aria-hidden="true"]'); }
  function roleOf(e) { return e.getAttribute('role') ?? (e.localName === 'input' ? INPUTS[e.type] ?? 'textbox' : e.localName === 'a' && !e.hasAttribute('href') ? 'generic' : TAGS[e.localName] ?? ''); }
  function name(e) {
    const text = (e.getAttribute('aria-label') ?? e.textContent ?? '').replace(/\s+/g, ' ').trim().slice(0, 40);
    return `${e.localName}${e.id ? `#${e.id}` : ''}${[...e.classList].map((c) => `.${c}`).join('')}${text ? ` “${text}”` : ''}`;
  }
  function place(e) { // the same after what it is in was drawn anew
    const out = [];
    for (let n = e; n && n !== document.documentElement; n = n.parentElement) out.unshift(`${n.localName}:${[...(n.parentElement?.children ?? [n])].indexOf(n)}`);
    return out.join('>');
  }

  // ---- colours

  function colour(text) {
    let m = /^rgba?\(([\d.]+), ?([\d.]+), ?([\d.]+)(?:, ?([\d.]+))?\)$/.exec(text);
    if (m) return [Number(m[1]), Number(m[2]), Number(m[3]), Number(m[4] ?? 1)];
    m = /^color\(srgb ([\d.e-]+) ([\d.e-]+) ([\d.e-]+)(?: \/ ([\d.]+))?\)$/.exec(text);
    if (m) return [m[1] * 255, m[2] * 255, m[3] * 255, Number(m[4] ?? 1)];
    throw new Error(`a11y.js: the colour ${text} is written in a way that it cannot read`);
  }
  const colours = (text) => (text.match(/rgba?\([^)]*\)|color\(srgb [^)]*\)/g) ?? []).map(colour);
  const mix = (top, under, part) => [0, 1, 2].map((i) => top[i] * part + under[i] * (1 - part));
  const over = (top, under) => mix(top, under, top[3]);
  function luminance(c) {
    const [r, g, b] = c.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }
  function ratio(a, b) {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  }
  function chain(e) {
    const out = [];
    for (let n = e; n; n = n.parentElement) out.unshift(n);
    return out;
  }
  // painted are the colours of the ink and of what is under it, through all backgrounds
  // and opacities; with a gradient, at each of its stops.
  function painted(on, i, under, ink) {
    if (i === on.length) return [[over(ink, under), under]];
    const s = getComputedStyle(on[i]);
    if (s.backgroundImage.includes('url(')) throw new Error(`a11y.js: ${name(on[i])} has a picture under its text`);
    const base = over(colour(s.backgroundColor), under);
    return [base, ...colours(s.backgroundImage).map((c) => over(c, base))]
      .flatMap((fill) => painted(on, i + 1, fill, ink)).map((pair) => pair.map((c) => mix(c, under, Number(s.opacity))));
  }
  const contrast = (e, ink) => Math.min(...painted(chain(e), 0, [255, 255, 255], ink).map(([a, b]) => ratio(a, b)));

  // ---- the checks

  // What slides or fades is looked at where it ends; the end of one may begin another.
  function settle() {
    for (let left = 100; left > 0; left--) {
      const all = document.getAnimations().filter((a) => a instanceof CSSTransition && a.playState !== 'finished');
      if (!all.length) return;
      for (const a of all) a.finish();
    }
  }

  function audit({ live = true } = {}) {
    settle();
    const found = [];
    const bad = (rule, e, why) => found.push({ rule, where: e === document ? 'document' : `${name(e)} in ${place(e).split('>').slice(-4, -1).join('>')}`, why });

    const html = document.documentElement;
    if (!/^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$/.test(html.lang)) bad('lang', html, `lang is “${html.lang}”`);
    if (!document.title.trim()) bad('title', document, 'it has no title');
    if (/user-scalable\s*=\s*(no|0)|maximum-scale\s*=\s*[01](\D|$)/.test(document.querySelector('meta[name="viewport"]')?.content ?? '')) bad('zoom', document, 'it cannot be made larger');

    // structure
    if (root === document.body) {
      const mains = every('main, [role="main"]');
      if (mains.length > 1) bad('landmark', mains[1], 'there is another main');
      if (!mains.length && !document.querySelector('main[inert]')) bad('landmark', document, 'there is no main');
      const ones = [...document.querySelectorAll('h1, [role="heading"][aria-level="1"]')].filter((e) => e.checkVisibility({ visibilityProperty: true }));
      if (ones.length !== 1) bad('h1', ones[1] ?? document, `there are ${ones.length} of them`);
    }
    const LANDMARK = 'main, nav, aside, header, footer, dialog, [role="main"], [role="navigation"], [role="complementary"], [role="region"], [role="dialog"], [role="status"], [role="alert"], [aria-live], .skip';
    const texts = new Set();
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const e = walker.currentNode.parentElement;
      if (walker.currentNode.nodeValue.trim() && visible(e) && !['STYLE', 'SCRIPT', 'NOSCRIPT', 'OPTION'].includes(e.tagName)) texts.add(e);
    }
    for (const e of texts) if (!e.closest(LANDMARK)) bad('landmark', e, 'it lies in no landmark');
    for (const css of ['nav, [role="navigation"]', 'aside, [role="complementary"]']) {
      const all = every(css);
      if (all.length > 1) for (const e of all) if (!e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby')) bad('landmark', e, 'there are several, and it has no label');
    }
    let level = 0;
    for (const e of every('h1, h2, h3, h4, h5, h6, [role="heading"]').filter(spoken)) {
      const n = Number(e.getAttribute('aria-level') ?? e.localName.slice(1));
      if (level && n > level + 1) bad('heading-order', e, `level ${n} comes after level ${level}`);
      if (!e.textContent.trim()) bad('heading-empty', e, 'it says nothing');
      level = n;
    }
    for (const e of every('li')) if (!e.parentElement.matches('ul, ol, menu, [role="list"], [role="listbox"], [role="group"]')) bad('list', e, 'it lies in no list');
    for (const e of every('dt, dd')) if (!e.parentElement.matches('dl, dl > div')) bad('list', e, 'it lies in no dl');
    for (const e of every('ul, ol')) for (const c of e.children) if (!['LI', 'TEMPLATE'].includes(c.tagName)) bad('list', c, 'it lies in a list and is no li');
    for (const e of every('table')) if (!e.querySelector('th')) bad('table', e, 'it has no header cells');
    for (const e of every('img')) if (!e.hasAttribute('alt')) bad('alt', e, 'it has no alt');

    // names, references, roles
    const ids = new Map();
    for (const e of document.querySelectorAll('[id]')) {
      if (ids.has(e.id)) bad('duplicate-id', e, `#${e.id} is there already`);
      ids.set(e.id, e);
    }
    for (const e of document.querySelectorAll('label[for]')) if (!ids.get(e.htmlFor)?.matches('input, select, textarea, button, meter, output, progress')) bad('label', e, `its for, “${e.htmlFor}”, is no control`);
    for (const e of every('label:not([for])')) if (!e.control) bad('label', e, 'it is bound to no control');
    for (const e of every('input:not([type="hidden"], [type="submit"], [type="button"]), select, textarea')) {
      if (!e.labels?.length && !e.getAttribute('aria-label') && !e.getAttribute('aria-labelledby')) bad('label', e, 'it has no label; a placeholder or title is none');
    }
    for (const e of every('*')) aria(e, bad, ids);

    // focus
    const FOCUSABLE = 'a[href], button, input, select, textarea, summary, [tabindex]';
    for (const e of every('[tabindex]')) if (e.tabIndex > 0) bad('tabindex', e, `it is ${e.tabIndex}; the order of the page is to hold`);
    for (const e of every('[aria-hidden="true"]')) for (const c of [e, ...e.querySelectorAll(FOCUSABLE)]) if (c.tabIndex >= 0 && visible(c)) bad('hidden-focus', c, 'it can be focused, and is hidden from screen readers');
    for (const e of every('a[href], button, summary, [role="button"], [role="link"], [role="tab"], [role="option"]')) for (const c of e.querySelectorAll(FOCUSABLE)) if (visible(c)) bad('nested', c, `it lies in ${name(e)}, which is a control, too`);
    for (const e of every('*')) {
      const s = getComputedStyle(e);
      const more = (/auto|scroll/.test(s.overflowY) && e.scrollHeight > e.clientHeight + 2) || (/auto|scroll/.test(s.overflowX) && e.scrollWidth > e.clientWidth + 2);
      // The arrow keys go through the list of a combobox, from its field, and scroll it.
      const listed = e.id && document.querySelector(`[role="combobox"][aria-controls="${CSS.escape(e.id)}"]`);
      if (more && !listed && e.tabIndex < 0 && ![...e.querySelectorAll(FOCUSABLE)].some((c) => c.tabIndex >= 0 && visible(c))) bad('scroll', e, 'it scrolls, and nothing in it can be focused');
    }

    // live regions
    if (live && root === document.body) {
      const hasLive = (css) => [...document.querySelectorAll(css)].some((e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest('[aria-hidden="true"], [inert]'));
      if (!hasLive('[role="status"], [role="log"], [aria-live="polite"]')) bad('live', document, 'there is no polite live region');
      if (!hasLive('[role="alert"], [aria-live="assertive"]')) bad('live', document, 'there is no assertive live region');
    }

    // what is seen
    for (const e of texts) text(e, bad);
    for (const e of every('input, textarea, select').filter((c) => !c.disabled && !['checkbox', 'radio'].includes(c.type))) field(e, bad);
    for (const e of every('a[href], button, summary').filter((c) => !c.disabled && !c.innerText.trim())) {
      for (const path of e.querySelectorAll('svg path, svg circle')) {
        const s = getComputedStyle(path);
        const c = contrast(e, colour(s.stroke === 'none' ? s.fill : s.stroke));
        if (c < LEAST_LARGE) bad('contrast-ui', e, `its drawing has ${c.toFixed(2)}:1, wants ${LEAST_LARGE}:1`);
      }
    }
    targets(bad);
    fits(texts, bad);
    if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
      for (const a of document.getAnimations()) {
        const t = a.effect?.getComputedTiming();
        if (a.playState === 'running' && t && (t.activeDuration > 100 || t.endTime === Infinity)) bad('motion', a.effect.target, 'it moves, though less motion is preferred');
      }
    }
    return found;
  }

  function aria(e, bad, ids) {
    const given = e.getAttribute('role');
    const role = roleOf(e);
    if (given !== null && !ROLES.has(given)) bad('role', e, `there is no role “${given}”`);
    if (given !== null) {
      for (const a of NEEDS[given] ?? []) if (!e.hasAttribute(a) && !(given === 'separator' && e.tabIndex < 0)) bad('role', e, `a ${given} needs ${a}`);
      if (given === 'separator' && e.tabIndex >= 0 && !e.hasAttribute('aria-valuenow')) bad('role', e, 'a separator that can be focused needs aria-valuenow');
      if (WITHIN[given]) {
        let p = e.parentElement;
        while (p && ['generic', 'none', 'presentation'].includes(roleOf(p))) p = p.parentElement;
        if (!p || !WITHIN[given].includes(roleOf(p))) bad('role', e, `a ${given} lies in a ${WITHIN[given].join(' or ')}`);
      }
      if (HOLDS[given] && ![...e.querySelectorAll('*')].some((c) => HOLDS[given].includes(roleOf(c)))) bad('role', e, `a ${given} holds at least one ${HOLDS[given].join(' or ')}`);
    }
    for (const { name: a, value } of e.attributes) {
      if (!a.startsWith('aria-')) continue;
      const want = VALUES[a];
      if (want === undefined) bad('aria', e, `there is no ${a}`);
      else if (Array.isArray(want) ? !want.includes(value) : want === 'number' && !/^-?\d+(\.\d+)?$/.test(value)) bad('aria', e, `${a} cannot be “${value}”`);
      else if (want === 'ids') for (const id of value.split(/\s+/)) if (!ids.has(id)) bad('reference', e, `${a} names #${id}, which is not there`);
      if (ONLY[a] && !ONLY[a].includes(role)) bad('aria', e, `${a} says nothing of a ${role || e.localName}`);
      if (['aria-label', 'aria-labelledby'].includes(a) && NAMELESS.has(role)) bad('aria', e, `${a} is not read on a ${role}`);
    }
  }

  function shown(e) { // whether any text directly in it is visible
    const s = getComputedStyle(e);
    return s.clipPath !== 'inset(50%)' && !e.closest('.visually-hidden') && Number.parseFloat(s.fontSize) > 0;
  }

  function text(e, bad) {
    if (!shown(e) || e.closest(':disabled, [aria-disabled="true"]')) return;
    const s = getComputedStyle(e);
    const size = Number.parseFloat(s.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(s.fontWeight) >= 700) ? LEAST_LARGE : LEAST_TEXT;
    const c = contrast(e, colour(s.color));
    if (c < least) bad('contrast', e, `its text has ${c.toFixed(2)}:1, wants ${least}:1`);
  }

  // A field is known by its edge or its ground, or by those of the frame around it.
  function field(e, bad) {
    const p = e.placeholder && !e.value ? contrast(e, colour(getComputedStyle(e, '::placeholder').color)) : 21;
    if (p < LEAST_TEXT) bad('contrast', e, `its placeholder has ${p.toFixed(2)}:1, wants ${LEAST_TEXT}:1`);
    const own = contrast(e, colour(getComputedStyle(e).color));
    if (own < LEAST_TEXT) bad('contrast', e, `its text has ${own.toFixed(2)}:1, wants ${LEAST_TEXT}:1`);
    let best = 0;
    for (let n = e, up = 0; n && up < 2; n = n.parentElement, up++) {
      const s = getComputedStyle(n);
      if (Number.parseFloat(s.borderBottomWidth) >= 1 && s.borderBottomStyle !== 'none') best = Math.max(best, contrast(n.parentElement, colour(s.borderBottomColor)));
      best = Math.max(best, contrast(n.parentElement, colour(s.backgroundColor)));
    }
    if (best < LEAST_LARGE) bad('contrast-ui', e, `nothing of its edge has more than ${best.toFixed(2)}:1, wants ${LEAST_LARGE}:1`);
  }

  // A link within a sentence is as high as its line; a splitter is as thin as a line.
  function targets(bad) {
    for (const e of every('a[href], button, input:not([type="hidden"]), select, textarea, summary, [role="tab"], [role="option"], [role="row"][tabindex]')) {
      if (e.disabled || !shown(e)) continue;
      const within = getComputedStyle(e).display.startsWith('inline') && /block|inline|list-item|table-cell/.test(getComputedStyle(e.parentElement).display) &&
        [...e.parentElement.childNodes].some((n) => n !== e && n.textContent.trim());
      const r = e.getBoundingClientRect();
      if (!within && (r.width < TARGET - 0.5 || r.height < TARGET - 0.5)) bad('target', e, `it is ${Math.round(r.width)} × ${Math.round(r.height)} px, wants ${TARGET}`);
    }
  }

  // Nothing is wider than the window but what scrolls by itself, and the page itself does
  // not scroll: a part that is placed wrongly would move it away.
  function fits(texts, bad) {
    const html = document.documentElement;
    for (const e of [html, document.body]) {
      if (e.scrollWidth > innerWidth + 1) bad('reflow', e, `it is ${e.scrollWidth} px wide in a window of ${innerWidth}`);
      if (getComputedStyle(e).overflowY === 'hidden' && e.scrollHeight > e.clientHeight + 1) bad('reflow', e, `it is ${e.scrollHeight} px high, and what is below ${e.clientHeight} cannot be reached`);
    }
    for (const e of texts) {
      const r = e.getBoundingClientRect();
      if (!shown(e) || !r.width || (r.right <= innerWidth + 1 && r.left >= -1)) continue;
      let held = false;
      for (let n = e; n && n !== document.body && !held; n = n.parentElement) held = getComputedStyle(n).overflowX !== 'visible' && n.getBoundingClientRect().right <= innerWidth + 1 && n.getBoundingClientRect().left >= -1;
      if (!held) bad('reflow', e, `it goes from ${Math.round(r.left)} to ${Math.round(r.right)} px in a window of ${innerWidth}`);
    }
  }

  // ---- by keyboard

  const LOOK = ['outlineStyle', 'outlineWidth', 'outlineColor', 'boxShadow', 'borderBottomColor', 'backgroundColor'];
  const parts = (e) => [[e, null], [e, '::after'], [e, '::before'], [e.parentElement, null]];
  const look = (e) => parts(e).map(([n, pseudo]) => { const s = getComputedStyle(n, pseudo); return LOOK.map((p) => s[p]); });

  // walk is what is to be reached by Tab, and a function that tells of what has the focus
  // now: {place, where, why}, why is empty if it can be seen that it has it.
  function walk() {
    const at = document.activeElement;
    at?.blur();
    settle();
    const all = every('a[href], button, input, select, textarea, summary, [tabindex]').filter((e) => e.tabIndex >= 0 && !e.disabled);
    const before = new Map(all.map((e) => [place(e), look(e)]));
    return {
      all: all.map((e) => ({ place: place(e), where: name(e), why: '' })),
      step: () => {
        settle();
        const e = document.activeElement;
        if (!e || e === document.body || e === document.documentElement) return { place: '', where: '', why: '' };
        const was = before.get(place(e));
        return { place: place(e), where: name(e), why: seen(e, was) };
      },
    };
  }

  function seen(e, was) {
    const r = e.getBoundingClientRect();
    const points = [[0.5, 0.5], [0.1, 0.5], [0.9, 0.5], [0.5, 0.1], [0.5, 0.9]].map(([x, y]) => document.elementFromPoint(r.left + r.width * x, r.top + r.height * y));
    if (!points.some((p) => p && (e.contains(p) || p.contains(e)))) return 'it has the focus, and is out of sight';
    const now = look(e);
    let best = 0;
    parts(e).forEach(([n], i) => {
      const outside = n.parentElement ?? n;
      const [style, width, edge, ...rest] = now[i];
      const changed = !was || was[i].join() !== now[i].join();
      if (changed && style !== 'none' && Number.parseFloat(width) >= 1) best = Math.max(best, contrast(outside, colours(edge)[0]));
      if (was) rest.forEach((v, k) => { if (v !== was[i][k + 3]) for (const c of colours(v)) best = Math.max(best, contrast(k === 2 ? outside : n, c)); });
    });
    return best < LEAST_LARGE ? `nothing that shows its focus has more than ${best.toFixed(2)}:1, wants ${LEAST_LARGE}:1` : '';
  }

  return { audit, walk };
})()
