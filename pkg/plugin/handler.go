package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Handler is one thing that a plugin does. Handlers are made by [BeforeAct] and
// the other hook points, [Tool], [Provider], [StorageBackend], [Guide],
// [Listen], [Sense], [Load] and [Unload].
type Handler interface{ add(*parts) }

// Handlers are all that a plugin does.
type Handlers []Handler

// Complete is the manifest that [Serve] registers for these handlers.
//
// A field that the manifest leaves out (hooks, tools, providers, storage,
// listeners, sensors, guides) is filled in from the handlers. One that it has is
// a full list: each of its entries must have a handler, and each handler of that
// kind an entry. A tool's entry may leave out description and args.
//
// The error is a [Problems] that lists everything that is wrong, also by
// [Manifest.Check], but for a missing Instance, which Serve fills in.
func (h Handlers) Complete(m Manifest) (Manifest, error) {
	m, _, err := h.complete(m)
	return m, err
}

func (h Handlers) complete(m Manifest) (Manifest, *parts, error) {
	p := &parts{}
	for _, one := range h {
		one.add(p)
	}
	found := slices.Clone(p.problems)
	found = append(found, p.fill(&m)...)
	checked := m
	if checked.Instance == "" {
		checked.Instance = "unborn"
	}
	if err := checked.Check(); err != nil {
		found = append(found, err.(Problems)...) //nolint:errorlint // Check says what its error is
	}
	if len(found) > 0 {
		return m, p, found
	}
	return m, p, nil
}

// answerFunc answers the body of a request. An error crosses the bus as an error. It
// calls yield when from then on it only waits for the answer to an earlier request.
type answerFunc func(ctx context.Context, body []byte, yield func()) ([]byte, error)

// parts are the handlers by kind.
type parts struct {
	hooks     []hookPart
	tools     []toolPart
	providers []providerPart
	storage   []StorageBackend
	guides    []guidePart
	listeners []listenerPart
	sensors   []listenerPart
	load      []func(context.Context) error
	unload    []func(context.Context) error
	problems  Problems
}

type handlerFunc func(*parts)

func (f handlerFunc) add(p *parts) { f(p) }

// bad is a handler that cannot be.
func bad(path, format string, args ...any) Handler {
	return handlerFunc(func(p *parts) {
		p.problems = append(p.problems, Problem{path, fmt.Sprintf(format, args...)})
	})
}

// fill completes the manifest and says where it and the handlers differ.
func (p *parts) fill(m *Manifest) (found Problems) {
	c := &checker{}
	m.Hooks = settle(c, "hooks", ".point", m.Hooks, each(p.hooks, func(h hookPart) Hook { return h.declared }),
		func(h Hook) string { return string(h.Point) })
	m.Tools = settle(c, "tools", ".name", m.Tools, each(p.tools, func(t toolPart) tool.Spec { return t.spec }),
		func(t tool.Spec) string { return t.Name })
	for i := range m.Tools {
		p.describe(&m.Tools[i])
	}
	m.Providers = settle(c, "providers", ".name", m.Providers, each(p.providers, func(g providerPart) provider.Info { return g.info }),
		func(i provider.Info) string { return i.Name })
	m.Guides = settle(c, "guides", "", m.Guides, each(p.guides, func(g guidePart) string { return g.name }),
		func(s string) string { return s })
	listener := func(l listenerPart) Listener { return Listener{Name: l.name} }
	name := func(l Listener) string { return string(l.Name) }
	m.Listeners = settle(c, "listeners", ".name", m.Listeners, each(p.listeners, listener), name)
	m.Sensors = settle(c, "sensors", ".name", m.Sensors, each(p.sensors, listener), name)
	p.fillStorage(c, m)
	return c.found
}

func (p *parts) fillStorage(c *checker, m *Manifest) {
	if len(p.storage) > 1 {
		c.add("storage", "there are %d handlers, a plugin is one storage backend", len(p.storage))
		return
	}
	var verbs []StorageVerb
	if len(p.storage) == 1 {
		verbs = p.storage[0].verbs()
		if m.Storage == nil {
			m.Storage = &Storage{}
		}
	}
	if m.Storage == nil {
		return
	}
	s := *m.Storage // the caller's stays as it is
	s.Verbs = settle(c, "storage.verbs", "", s.Verbs, verbs, func(v StorageVerb) string { return string(v) })
	m.Storage = &s
}

// describe adds what the manifest may leave out of a tool.
func (p *parts) describe(spec *tool.Spec) {
	i := slices.IndexFunc(p.tools, func(t toolPart) bool { return t.spec.Name == spec.Name })
	if i < 0 {
		return
	}
	if spec.Description == "" {
		spec.Description = p.tools[i].spec.Description
	}
	if len(spec.Args) == 0 {
		spec.Args = p.tools[i].spec.Args
	}
}

func each[P, D any](list []P, f func(P) D) (out []D) {
	for _, p := range list {
		out = append(out, f(p))
	}
	return out
}

// settle gives one field's declarations: the handlers' own when the manifest has
// none, else the manifest's, held against the handlers in both directions.
func settle[D any](c *checker, field, key string, declared, handled []D, name func(D) string) []D {
	for i, h := range handled {
		if slices.ContainsFunc(handled[:i], func(d D) bool { return name(d) == name(h) }) {
			c.add(field, "there are two handlers for %q", clip(name(h)))
		}
	}
	if declared == nil {
		return handled
	}
	for i, d := range declared {
		if !slices.ContainsFunc(handled, func(h D) bool { return name(h) == name(d) }) {
			c.add(fmt.Sprintf("%s[%d]%s", field, i, key), "%q is declared, but has no handler", clip(name(d)))
		}
	}
	for _, h := range handled {
		if !slices.ContainsFunc(declared, func(d D) bool { return name(d) == name(h) }) {
			c.add(field, "%q has a handler, but the manifest does not declare it; declare it, or leave %s out of the manifest",
				clip(name(h)), field)
		}
	}
	return slices.Clone(declared)
}

// endpoint is a subject with what answers there.
type endpoint struct {
	subject string
	answer  answerFunc
	own     bool // it also listens on its own subject, [subject.Replica]
}

// endpoints binds the handlers to the subjects of a complete manifest.
func (p *parts) endpoints(m Manifest, r *room) (out []endpoint) {
	for _, h := range p.hooks {
		out = append(out, endpoint{subject: subject.Hook(string(h.declared.Point), m.Name), answer: h.bind(r)})
	}
	for _, t := range p.tools {
		out = append(out, endpoint{subject: subject.Tool(m.Name, t.spec.Name), answer: t.bind(r), own: true})
	}
	if len(p.providers) > 0 {
		out = append(out, endpoint{subject: subject.Generate(m.Name), answer: generate(r, p.providers, m.Providers[0].Name), own: true})
	}
	for _, s := range p.storage {
		for _, v := range s.verbs() {
			out = append(out, endpoint{subject: subject.Storage(m.Name, string(v)), answer: s.bind(r, v)})
		}
	}
	if len(p.guides) > 0 {
		out = append(out, endpoint{subject: subject.Guide(m.Name), answer: guides(r, p.guides)})
	}
	return out
}

// Load adds what is done before the plugin is subscribed and registered, such as
// opening a database. Its error ends [Serve].
func Load(f func(context.Context) error) Handler {
	return handlerFunc(func(p *parts) { p.load = append(p.load, f) })
}

// Unload adds what is done when the plugin is drained and gone from the registry,
// in reverse order of the handlers. It runs also when Serve fails after loading.
func Unload(f func(context.Context) error) Handler {
	return handlerFunc(func(p *parts) { p.unload = append(p.unload, f) })
}

// encode is for what this package itself has made.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding the answer: %w", err)
	}
	return b, nil
}
