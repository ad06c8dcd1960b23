package webtest

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/chromedp"
)

// checks are the rules, as JavaScript; see [Page.Audit].
//
//go:embed a11y.js
var checks string

// Finding is something that keeps people from using the page.
type Finding struct {
	Rule  string // e.g. "contrast"
	Where string // the element, and what it is in
	Why   string
}

func (f Finding) String() string { return f.Rule + ": " + f.Where + ": " + f.Why }

// Audit looks at the page as it is shown now, and finds what breaks these rules, most of
// which are of WCAG 2.2 AA:
//
//   - name: every control, picture and region has a name, as the browser computes it
//   - role, aria, reference: roles and ARIA attributes exist, fit each other, and name
//     elements that exist; label: every field has its own label
//   - lang, title, zoom, h1, landmark, heading-order, heading-empty, list, table, alt,
//     duplicate-id: the page's structure
//   - tabindex, hidden-focus, nested, scroll: what is focused, and how
//   - live: there are live regions, a polite and an assertive one
//   - contrast: text has 4.5:1, large text 3:1, by the computed colours and all that
//     lies under it; contrast-ui: fields and drawings have 3:1
//   - target: what is clicked is at least 24 px wide and high
//   - reflow: nothing is wider than the window, and the page does not scroll away
//   - motion: nothing moves if less motion is preferred
//
// With a modal dialog, it looks at the dialog alone.
func (p *Page) Audit() []Finding {
	p.t.Helper()
	return p.audit(`{}`)
}

// AuditSignedOut is Audit for a page that has nothing to announce yet.
func (p *Page) AuditSignedOut() []Finding {
	p.t.Helper()
	return p.audit(`{live: false}`)
}

func (p *Page) audit(options string) []Finding {
	p.t.Helper()
	return append(Get[[]Finding](p, checks+`.audit(`+options+`).map((f) => ({Rule: f.rule, Where: f.where, Why: f.why}))`),
		p.nameless()...)
}

// named are the roles, in the browser's own words, of what must have a name.
var named = map[string]bool{
	"button": true, "link": true, "textbox": true, "searchbox": true, "combobox": true, "checkbox": true, "radio": true,
	"switch": true, "slider": true, "spinbutton": true, "splitter": true,
	"tab": true, "tabpanel": true, "tablist": true, "option": true, "listbox": true, "menuitem": true, "treeitem": true,
	"treegrid": true, "grid": true, "row": false, "dialog": true, "alertdialog": true,
	"image": true, "img": true, "DisclosureTriangle": true, "heading": true, "region": true, "complementary": true,
	"navigation": true, "meter": true, "progressbar": true,
}

// nameless finds, in the tree that the browser gives to screen readers, what has no name.
func (p *Page) nameless() (found []Finding) {
	p.t.Helper()
	p.Do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		if err != nil {
			return err
		}
		for _, n := range tree.Nodes {
			role := said(n.Role)
			if n.Ignored || said(n.Name) != "" || n.BackendDOMNodeID == 0 {
				continue
			}
			why := "a " + role + " has no name"
			if !named[role] {
				if !focusable(n) || role != "generic" && role != "paragraph" && role != "none" {
					continue
				}
				why = "it can be focused, and has neither role nor name"
			}
			where, byScript, err := describe(ctx, n.BackendDOMNodeID)
			if err != nil {
				return err
			}
			if named[role] || !byScript && where != "body" && where != "html" {
				found = append(found, Finding{Rule: "name", Where: where, Why: why})
			}
		}
		return nil
	}))
	return found
}

func focusable(n *accessibility.Node) bool {
	for _, p := range n.Properties {
		if p.Name == "focusable" && p.Value != nil {
			return string(p.Value.Value) == "true"
		}
	}
	return false
}

// said is a value of the tree as text.
func said(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var s string
	if json.Unmarshal(v.Value, &s) != nil {
		return string(v.Value)
	}
	return strings.TrimSpace(s)
}

// describe is an element by its tag, id and classes, and whether scripts alone focus it.
func describe(ctx context.Context, id cdp.BackendNodeID) (s string, byScript bool, err error) {
	d, err := chromedp.Call(ctx, dom.DescribeNode, dom.DescribeNodeParams{BackendNodeID: id})
	if err != nil {
		return "", false, err
	}
	s = d.Node.LocalName
	for i := 0; i+1 < len(d.Node.Attributes); i += 2 {
		switch d.Node.Attributes[i] {
		case "id":
			s += "#" + d.Node.Attributes[i+1]
		case "tabindex":
			byScript = strings.HasPrefix(d.Node.Attributes[i+1], "-")
		case "class":
			s += "." + strings.Join(strings.Fields(d.Node.Attributes[i+1]), ".")
		}
	}
	return s, byScript, nil
}

// stop is where Tab leads.
type stop struct{ Place, Where, Why string }

const stopOf = `((s) => ({Place: s.place, Where: s.where, Why: s.why}))`

// Walk goes through the page with the Tab key, once around, and finds what Tab does not
// reach (rule tab), from where it does not lead on (trap), and where it cannot be seen
// what has the focus (focus).
func (p *Page) Walk() (found []Finding) {
	p.t.Helper()
	all := Get[[]stop](p, `(window.a11yWalk = `+checks+`.walk()).all.map(`+stopOf+`)`)
	reached := map[string]bool{}
	var path []stop
	around := false
	for range 2*len(all) + 10 {
		p.Press("Tab")
		s := Get[stop](p, stopOf+`(a11yWalk.step())`)
		if s.Place == "" {
			continue // between the last and the first
		}
		if reached[s.Place] {
			around = true
			if len(all) > 1 && path[len(path)-1].Place == s.Place {
				found = append(found, Finding{Rule: "trap", Where: s.Where, Why: "Tab does not lead on from it"})
			}
			break
		}
		reached[s.Place] = true
		path = append(path, s)
		if s.Why != "" {
			found = append(found, Finding{Rule: "focus", Where: s.Where, Why: s.Why})
		}
	}
	if !around {
		found = append(found,
			Finding{Rule: "trap", Where: "document", Why: fmt.Sprintf("Tab does not come around in %d steps", 2*len(all)+10)})
	}
	for _, s := range all {
		if !reached[s.Place] {
			found = append(found, Finding{Rule: "tab", Where: s.Where, Why: "Tab does not reach it"})
		}
	}
	return found
}
