package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Handler is one capability of a plugin. [BeforeAct] and the functions of the other hook
// points, [Tool], [Provider], [Guide], [GuideFunc], [Listen], [Sense], [Load] and [Unload]
// return handlers; [StorageBackend] is one.
type Handler interface{ add(*parts) }

// Handlers are all handlers of a plugin.
type Handlers []Handler

// Complete returns the manifest that [Serve] registers for these handlers.
//
// It fills in each field that m leaves out (hooks, tools, providers, storage, listeners,
// sensors, guides) from the handlers. A field that m has must be a full list: each of its
// entries must have a handler, and each handler of that kind an entry. A tool's entry may
// leave out description and args.
//
// The error is a [Problems] that lists everything that is wrong, including what
// [Manifest.Check] finds. A missing Instance is not an error: Serve fills it in.
func (h Handlers) Complete(m Manifest) (Manifest, error) {
	m, _, err := h.complete(m)
	return m, err
}

func (h Handlers) complete(m Manifest) (Manifest, *parts, error) {
	p := &parts{}
	for _, one := range h {
		one.add(p)
	}
	found := append(slices.Clone(p.problems), p.attach()...)
	found = append(found, p.fill(&m)...)
	checked := m
	checked.Instance = cmp.Or(checked.Instance, "unset")
	if err := checked.Check(); err != nil {
		found = append(found, err.(Problems)...) //nolint:errorlint // Check documents its error's type
	}
	if len(found) > 0 {
		return m, p, found
	}
	return m, p, nil
}

// answerFunc returns the reply to a request with this body. An error is sent as an error
// reply. It calls yield when it only has to wait for the answer to an earlier request.
type answerFunc func(ctx context.Context, body []byte, yield func()) ([]byte, error)

// parts are the handlers by kind.
type parts struct {
	hooks     []hookPart
	tools     []toolPart
	probes    []probePart
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

// invalid returns a handler that only reports a problem.
func invalid(path, format string, args ...any) Handler {
	return handlerFunc(func(p *parts) {
		p.problems = append(p.problems, Problem{path, fmt.Sprintf(format, args...)})
	})
}

// fill completes the manifest and returns where it and the handlers differ.
func (p *parts) fill(m *Manifest) (found Problems) {
	c := &checker{}
	m.Hooks = reconcile(c, "hooks", ".point", m.Hooks, each(p.hooks, func(h hookPart) Hook { return h.declared }),
		func(h Hook) string { return string(h.Point) })
	m.Tools = reconcile(c, "tools", ".name", m.Tools, each(p.tools, func(t toolPart) tool.Spec { return t.spec }),
		func(t tool.Spec) string { return t.Name })
	for i := range m.Tools {
		p.describe(&m.Tools[i])
	}
	m.Providers = reconcile(c, "providers", ".name", m.Providers,
		each(p.providers, func(g providerPart) provider.Info { return g.info }),
		func(i provider.Info) string { return i.Name })
	m.Guides = reconcile(c, "guides", "", m.Guides, each(p.guides, func(g guidePart) string { return g.name }),
		func(s string) string { return s })
	listener := func(l listenerPart) Listener { return Listener{Name: l.name} }
	name := func(l Listener) string { return string(l.Name) }
	m.Listeners = reconcile(c, "listeners", ".name", m.Listeners, each(p.listeners, listener), name)
	m.Sensors = reconcile(c, "sensors", ".name", m.Sensors, each(p.sensors, listener), name)
	p.fillStorage(c, m)
	return c.found
}

func (p *parts) fillStorage(c *checker, m *Manifest) {
	if len(p.storage) > 1 {
		c.add("storage", "has %d handlers, at most 1", len(p.storage))
		return
	}
	var verbs []StorageVerb
	if len(p.storage) == 1 {
		verbs = p.storage[0].verbs()
		m.Storage = cmp.Or(m.Storage, &Storage{})
	}
	if m.Storage == nil {
		return
	}
	s := *m.Storage // a copy: the caller's is not changed
	s.Verbs = reconcile(c, "storage.verbs", "", s.Verbs, verbs, func(v StorageVerb) string { return string(v) })
	if has := len(p.storage) == 1 && p.storage[0].Index != nil; s.Index && !has {
		c.add("storage.index", "is declared, but has no handler")
	} else {
		s.Index = has
	}
	m.Storage = &s
}

// describe fills in the fields that a manifest may leave out of a tool.
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
	spec.Probe = p.tools[i].probe != nil
}

func each[P, D any](list []P, f func(P) D) (out []D) {
	for _, p := range list {
		out = append(out, f(p))
	}
	return out
}

// reconcile returns one field's declarations: those of the handlers if the manifest has
// none, else the manifest's. It reports declarations without a handler, and handlers
// without a declaration.
func reconcile[D any](c *checker, field, key string, declared, handled []D, name func(D) string) []D {
	for i, h := range handled {
		if slices.ContainsFunc(handled[:i], func(d D) bool { return name(d) == name(h) }) {
			c.add(field, "more than one handler for %q", clip(name(h)))
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

// endpoint is a subject and the function that answers requests on it.
type endpoint struct {
	subject string
	answer  answerFunc
	own     bool // also subscribe to this process's own subject, [subject.Replica]
}

// endpoints returns the subjects of a complete manifest with their handlers.
func (p *parts) endpoints(m Manifest, r *runtime) (out []endpoint) {
	for _, h := range p.hooks {
		out = append(out, endpoint{subject: subject.Hook(string(h.declared.Point), m.Name), answer: h.bind(r)})
	}
	for _, t := range p.tools {
		out = append(out, endpoint{subject: subject.Tool(m.Name, t.spec.Name), answer: t.bind(r), own: true})
	}
	if len(p.providers) > 0 {
		out = append(out,
			endpoint{subject: subject.Generate(m.Name), answer: generate(r, p.providers, m.Providers[0].Name), own: true})
	}
	for _, s := range p.storage {
		for _, v := range s.verbs() {
			out = append(out, endpoint{subject: subject.Storage(m.Name, string(v)), answer: s.bind(r, v)})
		}
		if s.Index == nil {
			continue
		}
		for _, v := range IndexVerbs() {
			out = append(out, endpoint{subject: subject.Storage(m.Name, string(v)), answer: bindIndex(r, s.Index, v)})
		}
	}
	if len(p.guides) > 0 {
		out = append(out, endpoint{subject: subject.Guide(m.Name), answer: guides(r, p.guides)})
	}
	return out
}

// Load adds a function that [Serve] calls before it subscribes and registers the plugin,
// for example to open a database. If the function returns an error, Serve returns it.
func Load(f func(context.Context) error) Handler {
	return handlerFunc(func(p *parts) { p.load = append(p.load, f) })
}

// Unload adds a function that [Serve] calls after the plugin was drained and unregistered.
// The functions are called in reverse order of the handlers, also if Serve fails during or
// after loading.
func Unload(f func(context.Context) error) Handler {
	return handlerFunc(func(p *parts) { p.unload = append(p.unload, f) })
}

// encode encodes a reply that this package has made.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding the answer: %w", err)
	}
	return b, nil
}
