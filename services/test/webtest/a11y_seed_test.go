package webtest_test

import (
	"fmt"
	"strings"
	"testing"

	"skandha.dev/services/test/webtest"
)

// put makes an element, plant puts it into the conversation, and uproot takes out again
// all that was planted.
const put = `
	window.put = (tag, attrs = {}, ...children) => {
		const e = document.createElement(tag);
		for (const [name, value] of Object.entries(attrs)) name === "css" ? e.style.cssText = value : e.setAttribute(name, value);
		e.append(...children);
		return e;
	};
	window.plant = (e) => { one("main").append(e); window.planted.push(() => e.remove()); return e; };
	window.planted = [];
	window.uproot = () => planted.splice(0).forEach((undo) => undo());`

// defects are one of each kind that Audit looks for: the rule, what Where says of it, and
// how to make it.
var defects = []struct{ rule, where, js string }{
	{
		"lang", "html",
		`document.documentElement.lang = "english language"; planted.push(() => document.documentElement.lang = "en")`,
	},
	{"title", "document", `const was = document.title; document.title = ""; planted.push(() => document.title = was)`},
	{
		"zoom", "document",
		`const m = one('meta[name="viewport"]'), was = m.content; m.content += ", user-scalable=no"; planted.push(() => m.content = was)`,
	},
	{"h1", "#second-h1", `plant(put("h1", {id: "second-h1"}, "Another"))`},
	{
		"landmark", "#nowhere",
		`const e = put("p", {id: "nowhere"}, "in no landmark"); document.body.append(e); planted.push(() => e.remove())`,
	},
	{"landmark", "#second-main", `plant(put("div", {id: "second-main", role: "main"}))`},
	{"heading-order", "#deep", `plant(put("h6", {id: "deep"}, "Deep"))`},
	{"heading-empty", "#silent", `plant(put("h2", {id: "silent"}))`},
	{"list", "#stray", `plant(put("div", {}, put("li", {id: "stray"}, "x")))`},
	{"list", "#guest", `plant(put("ul", {}, put("div", {id: "guest"}, "x")))`},
	{"table", "#headless", `plant(put("table", {id: "headless"}, put("tr", {}, put("td", {}, "x"))))`},
	{"alt", "#picture", `plant(put("img", {id: "picture", src: "data:,", width: 30, height: 30}))`},
	{"duplicate-id", "#input", `plant(put("span", {id: "input"}))`},
	{"label", "#unlabelled", `plant(put("input", {id: "unlabelled", placeholder: "Say it"}))`},
	{"label", "label.unbound", `plant(put("label", {class: "unbound", for: "nothing"}, "Name"))`},
	{"name", "button#mute", `plant(put("button", {id: "mute", css: "width: 30px; height: 30px"}))`},
	{
		"name", "a#mute-link",
		`plant(put("a", {id: "mute-link", href: "#", css: "display: block; width: 30px; height: 30px"}))`,
	},
	{"name", "div#mute-stop", `plant(put("div", {id: "mute-stop", tabindex: 0, css: "height: 30px"}))`},
	{"role", "#odd", `plant(put("div", {id: "odd", role: "buton"}, "x"))`},
	{
		"role", "#lonely-tab",
		`plant(put("div", {id: "lonely-tab", role: "tab", "aria-selected": "true", "aria-controls": "conversation"}, "x"))`,
	},
	{"role", "#switch", `plant(put("div", {id: "switch", role: "switch", tabindex: 0, css: "min-height: 30px"}, "x"))`},
	{"role", "#no-options", `plant(put("div", {id: "no-options", role: "listbox", "aria-label": "Choices"}))`},
	{"aria", "#misspelt", `plant(put("button", {id: "misspelt", "aria-lable": "x", css: "min-height: 30px"}, "Send it"))`},
	{"aria", "#maybe", `plant(put("button", {id: "maybe", "aria-pressed": "maybe", css: "min-height: 30px"}, "Pin it"))`},
	{"aria", "#labelled-span", `plant(put("span", {id: "labelled-span", "aria-label": "x"}, "y"))`},
	{
		"reference", "#leads-nowhere",
		`plant(put("button", {id: "leads-nowhere", "aria-controls": "not-there", css: "min-height: 30px"}, "Open it"))`,
	},
	{"tabindex", "#first", `plant(put("button", {id: "first", tabindex: 3, css: "min-height: 30px"}, "Me first"))`},
	{
		"hidden-focus", "#ghost",
		`plant(put("div", {"aria-hidden": "true"}, put("button", {id: "ghost", css: "min-height: 30px"}, "Boo")))`,
	},
	{
		"nested", "#inner",
		`plant(put("a", {href: "#", css: "display: block"}, "Outer ", put("button", {id: "inner", css: "min-height: 30px"}, "Inner")))`,
	},
	{
		"scroll", "#stuck",
		`plant(put("div", {id: "stuck", css: "height: 20px; overflow-y: auto"}, put("p", {css: "height: 90px"}, "long")))`,
	},
	{
		"live", "document",
		`for (const e of all('[role="status"], [role="log"], [aria-live="polite"]')) { const r = e.getAttribute("role"), l = e.getAttribute("aria-live"); e.removeAttribute("role"); e.removeAttribute("aria-live"); planted.push(() => { if (r) e.setAttribute("role", r); if (l) e.setAttribute("aria-live", l); }); }`,
	},
	{
		"contrast", "#pale",
		`plant(put("p", {id: "pale", css: "color: color-mix(in srgb, currentColor 45%, transparent)"}, "pale"))`,
	},
	{"contrast", "#faded", `plant(put("p", {id: "faded", css: "opacity: 0.4"}, "faded"))`},
	{
		"contrast", "#on-gradient",
		`plant(put("p", {id: "on-gradient", css: "background: linear-gradient(transparent, #555)"}, "on a gradient"))`,
	},
	{
		"contrast", "#faint-hint",
		`plant(put("label", {}, "Hint ", put("input", {id: "faint-hint", class: "input", placeholder: "faint", css: "opacity: 0.5"})))`,
	},
	{
		"contrast-ui", "#edgeless",
		`plant(put("label", {}, "Edge ", put("input", {id: "edgeless", css: "border: 0; background: transparent; min-height: 30px"})))`,
	},
	{
		"contrast-ui", "#pale-icon",
		`const b = one("main .icon-btn:not(.only-narrow)").cloneNode(true); b.id = "pale-icon"; b.removeAttribute("aria-controls"); b.style.color = "color-mix(in srgb, currentColor 25%, transparent)"; plant(b)`,
	},
	{"target", "#tiny", `plant(put("button", {id: "tiny", css: "width: 15px; height: 15px; padding: 0"}, "x"))`},
	{
		"reflow", "#wide",
		`plant(put("p", {id: "wide", css: "width: 3000px; text-align: right; margin: 0"}, "as wide as that"))`,
	},
	{
		"reflow", "body",
		`const e = put("i", {css: "position: absolute; top: 4000px"}, ""); e.textContent = " "; document.body.append(put("b")); e.style.height = "40px"; e.style.width = "10px"; plant(e); one("main").style.position = "static"; planted.push(() => { one("main").style.position = ""; document.body.lastElementChild.remove(); })`,
	},
	{
		"motion", "#restless",
		`const e = plant(put("p", {id: "restless"}, "it moves")); e.animate({transform: ["none", "translateX(4px)"]}, {duration: 1000, iterations: Infinity})`,
	},
}

// What finds nothing on the page must be able to find something: one defect of each kind
// is made, and found where it is.
func TestTheAuditFindsWhatIsWrong(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "kitchen")
	p.Prefer("light", true)
	p.Wait(`one(".welcome") && one(".state").dataset.state === "waiting_for_input"`)
	webtest.Get[bool](p, `(() => {`+put+`return true; })()`)
	report(t, "before anything is wrong", p.Audit())
	for _, d := range defects {
		webtest.Get[bool](p, `(() => {`+d.js+`; return true; })()`)
	}
	found := p.Audit()
	for _, d := range defects {
		if !has(found, d.rule, d.where) {
			t.Errorf("%s at %s is not found; what is found:\n%s", d.rule, d.where, lines(found, d.rule))
		}
	}
	rules := map[string]bool{}
	for _, d := range defects {
		rules[d.rule] = true
	}
	for _, f := range found {
		if !rules[f.Rule] {
			t.Errorf("no defect is made of the rule %s, by which this was found: %s", f.Rule, f)
		}
	}
	webtest.Get[bool](p, `(uproot(), true)`)
	report(t, "after all is mended", p.Audit())
}

// The same for what is found by Tab alone.
func TestTheWalkFindsWhatIsWrong(t *testing.T) {
	r := webtest.Start(t, webtest.Options{})
	p := r.SignedIn(t, "kitchen")
	p.Prefer("light", true)
	p.Wait(`one(".welcome") && one(".state").dataset.state === "waiting_for_input"`)
	webtest.Get[bool](p, `(() => {`+put+`return true; })()`)
	report(t, "before anything is wrong", p.Walk())
	for _, d := range []struct{ rule, where, js string }{
		{"focus", "#unmarked", `plant(put("button", {id: "unmarked", css: "outline: none"}, "Unmarked"))`},
		{"focus", "#faintly", `plant(put("button", {id: "faintly", css: "outline: 2px solid #eee"}, "Faintly marked"))`},
		{
			"focus", "#covered",
			`plant(put("button", {id: "covered", css: "position: fixed; left: 300px; top: 300px; width: 60px; height: 30px; z-index: 1"}, "Covered")); plant(put("div", {css: "position: fixed; left: 280px; top: 280px; width: 200px; height: 100px; background: #fff; z-index: 2"}))`,
		},
		{
			"trap", "#trap",
			`plant(put("button", {id: "trap"}, "Trap")).addEventListener("keydown", (e) => e.key === "Tab" && e.preventDefault())`,
		},
		{
			"tab", "#unreached",
			`plant(put("button", {id: "before"}, "Before")).addEventListener("keydown", (e) => { if (e.key === "Tab") { e.preventDefault(); one("#after").focus(); } }); plant(put("button", {id: "unreached"}, "Unreached")); plant(put("button", {id: "after"}, "After"))`,
		},
	} {
		webtest.Get[bool](p, `(() => {`+d.js+`; return true; })()`)
		if found := p.Walk(); !has(found, d.rule, d.where) {
			t.Errorf("%s at %s is not found; what is found: %v", d.rule, d.where, found)
		}
		webtest.Get[bool](p, `(uproot(), true)`)
	}
	report(t, "after all is mended", p.Walk())
}

func has(found []webtest.Finding, rule, where string) bool {
	for _, f := range found {
		if f.Rule == rule && strings.Contains(f.Where, where) {
			return true
		}
	}
	return false
}

func lines(found []webtest.Finding, rule string) string {
	var b strings.Builder
	for _, f := range found {
		if f.Rule == rule {
			fmt.Fprintln(&b, f)
		}
	}
	return b.String()
}
