package rights

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/subject"
)

// Charter says what a plugin, listener or program from outside may do. The zero charter grants
// nothing.
type Charter struct {
	// Name is that of the plugin, and of its account.
	Name subject.Identity `json:"name"`
	// Hooks are the points at which it may be asked; * for all points. With :judge it may also deny,
	// have a person asked, and fail closed; with :observe it may change nothing.
	Hooks []string `json:"hooks,omitempty"`
	// Tools are the namespaces of its tools, which come before the colon of their names; * for all.
	Tools []string `json:"tools,omitempty"`
	// Providers are names of language models; * for all.
	Providers []string `json:"providers,omitempty"`
	Storage   bool     `json:"storage,omitempty"` // it may keep notes, or an index of memories
	Guides    bool     `json:"guides,omitempty"`  // it may supply guides
	// Listeners are the writers as which it may send inputs to Agents.
	Listeners []subject.Writer `json:"listeners,omitempty"`
	Agents    []subject.Agent  `json:"agents,omitempty"` // whom it may talk to, follow, see and serve; empty: all
	// Sessions are those of Agents that it may follow, and to which a listener may send inputs. Without
	// any, it follows none and may send to all.
	Sessions []subject.Session `json:"sessions,omitempty"`
	See      bool              `json:"see,omitempty"` // it may see all that happens with Agents
	// Order says that it may set its priority, and whom it runs before and after.
	Order   bool      `json:"order,omitempty"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
}

// Local is the charter of a plugin or listener that the people who run a system attach on the same
// machine: everything, under its own name alone.
func Local(name subject.Identity) Charter {
	return Charter{
		Name: name, Hooks: []string{Any + ":" + Judge}, Tools: []string{Any}, Providers: []string{Any}, Storage: true, Guides: true,
		Listeners: []subject.Writer{subject.Writer(name)}, Order: true,
	}
}

// The marks of hook points of a charter.
const (
	Judge   = "judge"   // it may deny, have a person asked, and fail closed
	Observe = "observe" // it may change nothing
)

// Any means all points, namespaces or providers in a charter.
const Any = "*"

// reserved are names that no charter can have: those of responders and writers of Skandha.
func reserved(d *Declaration, name subject.Identity) bool {
	if d.Services[string(name)].Summary != "" || strings.HasPrefix(string(name), string(subject.Person(""))) {
		return true
	}
	for _, p := range d.Services {
		if slices.Contains(p.Answers, string(name)) {
			return true
		}
	}
	return subject.OwnWriter(subject.Writer(name))
}

// Validate reports every invalid field; each error names its field and how to correct it.
func (c Charter) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if _, err := subject.Parse[subject.Identity](string(c.Name)); err != nil {
		bad("name: %w", err)
	} else if reserved(Declared(), c.Name) {
		bad("name: %q is a name of Skandha's services; choose another", c.Name)
	}
	for _, h := range c.Hooks {
		point, suffix, marked := strings.Cut(h, ":")
		if point != Any && !slices.Contains(hook.Points(), hook.Point(point)) {
			bad("hooks: no hook point %q; want * or one of %s", point, points())
		}
		if marked && suffix != Judge && suffix != Observe {
			bad("hooks: %q: want POINT, POINT:%s or POINT:%s", h, Judge, Observe)
		}
	}
	for field, list := range map[string][]string{"tools": c.Tools, "providers": c.Providers} {
		for _, name := range list {
			if name != Any && !subject.Valid(name) {
				bad("%s: %q: want * or 1 to %d characters of A-Z a-z 0-9 _ -", field, name, subject.MaxIDLen)
			}
		}
	}
	for _, l := range c.Listeners {
		switch _, err := subject.Parse[subject.Writer](string(l)); {
		case err != nil:
			bad("listeners: %w", err)
		case reserved(Declared(), subject.Identity(l)):
			bad("listeners: %q is a name of Skandha's services; choose another", l)
		}
	}
	for _, a := range c.Agents {
		if _, err := subject.Parse[subject.Agent](string(a)); err != nil {
			bad("agents: %w", err)
		}
	}
	for _, s := range c.Sessions {
		if _, err := subject.Parse[subject.Session](string(s)); err != nil {
			bad("sessions: %w", err)
		}
	}
	if !c.Grants() {
		bad("it grants nothing; add --hooks, --tools, --providers, --storage, --guides, --listener, --session or --see")
	}
	return errors.Join(errs...)
}

// Grants reports whether the charter grants anything.
func (c Charter) Grants() bool {
	return len(c.Hooks)+len(c.Tools)+len(c.Providers)+len(c.Listeners)+len(c.Sessions) > 0 ||
		c.Storage || c.Guides || c.See
}

// Answers reports whether the charter lets others ask its party, whose answers may be large.
func (c Charter) Answers() bool {
	return len(c.Hooks)+len(c.Tools)+len(c.Providers) > 0 || c.Storage || c.Guides
}

func points() string {
	var out []string
	for _, p := range hook.Points() {
		out = append(out, string(p))
	}
	return strings.Join(out, ", ")
}

// Party returns what an identity with the charter may publish and subscribe beyond its own
// account.
func (d *Declaration) Party(ch Charter) (Permissions, error) {
	if err := ch.Validate(); err != nil {
		return Permissions{}, fmt.Errorf("charter: %w", err)
	}
	c := compiler{d: d, values: map[string][]string{
		"me": {string(ch.Name)}, "points": ch.points(), "agents": texts(ch.Agents), "sessions": texts(ch.Sessions),
		"listeners": texts(ch.Listeners),
	}}
	for _, part := range ch.parts() {
		p, ok := d.Charter[part]
		if !ok {
			c.fail("no part %q of a charter is declared", part)
		}
		c.part(p)
	}
	may, err := c.permissions()
	may.Publish = widest(may.Publish)
	return may, err
}

// Muted is Party without what a listener sends.
func (d *Declaration) Muted(ch Charter) (Permissions, error) {
	all, err := d.Party(ch)
	if err != nil {
		return all, err
	}
	all.Publish = slices.DeleteFunc(all.Publish, func(s string) bool { return strings.Contains(s, ".sense.") })
	return all, nil
}

// widest leaves out the subjects that others cover: the server accepts no imports of services that overlap.
func widest(subjects []string) []string {
	return slices.DeleteFunc(slices.Clone(subjects), func(s string) bool {
		return slices.ContainsFunc(subjects, func(o string) bool { return o != s && covers(o, s) })
	})
}

// covers reports whether a subject matches all that another one does.
func covers(wide, narrow string) bool {
	return slices.EqualFunc(strings.Split(wide, "."), strings.Split(narrow, "."),
		func(w, n string) bool { return w == n || w == "*" && n != ">" })
}

// Part returns what a part of a charter grants, with names in place of what the charter says.
func (d *Declaration) Part(name string) (Permissions, error) {
	c := compiler{d: d, values: map[string][]string{
		"me": {"NAME"}, "points": {"POINTS"}, "agents": {"AGENTS"}, "sessions": {"SESSIONS"}, "listeners": {"LISTENERS"},
	}}
	c.part(d.Charter[name])
	return c.permissions()
}

// Exported returns all that charters can grant, which the system's account offers to the accounts
// of parties.
func (d *Declaration) Exported() (Permissions, error) {
	c := compiler{d: d, values: map[string][]string{
		"me": {Any}, "points": {Any}, "agents": {Any}, "sessions": {Any}, "listeners": {Any},
	}}
	for _, p := range d.Charter {
		c.part(p)
	}
	return c.permissions()
}

// parts are the parts of the declaration that the charter grants.
func (c Charter) parts() []string {
	out := []string{"member"}
	for part, granted := range map[string]bool{
		"hooks": len(c.Hooks) > 0, "tools": len(c.Tools) > 0, "providers": len(c.Providers) > 0, "storage": c.Storage,
		"calls": c.calls(), "guides": c.Guides, "listener": len(c.Listeners) > 0, "sessions": len(c.Sessions) > 0, "see": c.See,
	} {
		if granted {
			out = append(out, part)
		}
	}
	return out
}

// calls reports whether a hook of the charter does more than observe.
func (c Charter) calls() bool {
	return slices.ContainsFunc(c.Hooks, func(h string) bool { return !strings.HasSuffix(h, ":"+Observe) })
}

func (c Charter) points() (out []string) {
	for _, h := range c.Hooks {
		point, _, _ := strings.Cut(h, ":")
		out = append(out, subjectOf(point))
	}
	return out
}

// subjectOf is a hook point as a token; * stays.
func subjectOf(point string) string {
	if point == Any {
		return Any
	}
	return subject.Encode(point)
}

// texts are the ids, or * if there are none.
func texts[T ~string](ids []T) []string {
	out := make([]string, 0, max(len(ids), 1))
	for _, id := range ids {
		out = append(out, string(id))
	}
	if len(out) == 0 {
		return []string{Any}
	}
	return out
}
