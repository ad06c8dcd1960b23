package webtest

import (
	"strings"

	"github.com/chromedp/chromedp"
)

// aim finds where the first visible element of a selector can be clicked, once it rests.
// From then on, until release, what a click would do to anything else is kept from
// happening, and missed says so: between aiming and clicking the page may have moved.
const aim = `(async () => {
	const target = () => all(CSS).find((e) => e.checkVisibility({visibilityProperty: true}) && !e.disabled);
	const e = target();
	if (!e) return {Why: 'it is not there, or cannot be clicked'};
	e.scrollIntoView({block: 'nearest', behavior: 'instant'});
	const was = e.getBoundingClientRect();
	await new Promise((done) => setTimeout(done, 30));
	const is = e.getBoundingClientRect();
	if (e !== target() || ['x', 'y', 'width', 'height'].some((k) => was[k] !== is[k])) return {Why: 'it moves'};
	const [X, Y] = [is.x + is.width / 2, is.y + is.height / 2];
	const top = document.elementFromPoint(X, Y);
	if (!top || !e.contains(top)) return {Why: 'over it lies ' + (top ? top.outerHTML.slice(0, 160) : 'nothing: it is outside of the window')};
	const types = ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click', 'auxclick'];
	window.missed = '';
	const guard = (event) => {
		if (!event.isTrusted || e.contains(event.target)) return;
		event.preventDefault();
		event.stopImmediatePropagation();
		missed ||= 'the click met ' + (event.target.outerHTML ?? 'the document').slice(0, 160);
	};
	for (const type of types) addEventListener(type, guard, {capture: true});
	window.release = () => types.forEach((type) => removeEventListener(type, guard, {capture: true}));
	return {X, Y, Why: ''};
})()`

// Click waits until the first visible element of css can be clicked and rests, and clicks
// in its middle as a person does. What lies over it is not clicked through.
func (p *Page) Click(css string) {
	p.t.Helper()
	type aimed struct {
		X, Y float64
		Why  string
	}
	var why string
	p.until("a click on "+css, func() bool {
		at, err := Eval[aimed](p, strings.Replace(aim, "CSS", quote(css), 1))
		if err != nil || at.Why != "" {
			why = at.Why
			return false
		}
		p.Do(chromedp.MouseClickXY(at.X, at.Y))
		// A click may have led to another page, where nothing is to be released.
		why = Get[string](p, `(window.release?.(), window.missed ?? "")`)
		return why == ""
	}, func() string { return why })
}
