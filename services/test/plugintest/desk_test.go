package plugintest

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// desk answers plugins as the registry does, and otherwise as a test wants: the
// faults of a registry are hard to provoke in a real one.
type desk struct {
	t  testing.TB
	b  *journal.Journal
	mu sync.Mutex

	ttl       time.Duration
	plugins   map[subject.Plugin]*entry
	heard     []string // verb and instance, in order
	override  func(verb subject.PluginVerb, name subject.Plugin, body []byte) (*plugin.Lease, error)
	responder *bus.Responder
}

type entry struct {
	manifest plugin.Manifest
	leases   map[subject.Instance]plugin.LeaseState
	state    plugin.LeaseState // of leases that are not draining
	reason   string
}

func newDesk(t testing.TB, b *journal.Journal) *desk {
	t.Helper()
	d := &desk{t: t, b: b, ttl: 150 * time.Millisecond, plugins: map[subject.Plugin]*entry{}}
	d.open()
	t.Cleanup(d.close)
	return d
}

func (d *desk) open() {
	d.t.Helper()
	var err error
	if d.responder, err = d.b.Respond("plugin.*.*", "core", "core", d.serve); err != nil {
		d.t.Fatal(err)
	}
	if err := d.b.Conn().Flush(); err != nil {
		d.t.Fatal(err)
	}
}

// close is a core that goes away.
func (d *desk) close() {
	d.responder.Stop()
	if d.b.Connected() {
		_ = d.b.Conn().Flush() // fails when the test has just ended the connection
	}
}

func (d *desk) serve(q *bus.Request) {
	lease, err := d.answer(q)
	if err != nil {
		_ = q.ReplyError(err)
		return
	}
	body, err := json.Marshal(lease)
	if err != nil {
		d.t.Error(err)
	}
	_ = q.Reply(body)
}

func (d *desk) answer(q *bus.Request) (*plugin.Lease, error) {
	token := strings.Split(q.Subject, ".")
	verb, name := subject.PluginVerb(token[1]), subject.Plugin(token[2])
	var who struct{ Instance subject.Instance }
	if err := json.Unmarshal(q.Data, &who); err != nil {
		d.t.Errorf("%s: %v", q.Subject, err)
	}
	d.mu.Lock()
	d.heard = append(d.heard, string(verb)+" "+string(who.Instance))
	override := d.override
	d.mu.Unlock()
	if override != nil {
		if lease, err := override(verb, name, q.Data); lease != nil || err != nil {
			return lease, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch verb {
	case subject.Register:
		return d.register(q.Data)
	case subject.Heartbeat:
		return d.heartbeat(name, q.Data)
	default:
		return d.unregister(name, q.Data)
	}
}

func (d *desk) register(body []byte) (*plugin.Lease, error) {
	m, err := plugin.DecodeManifest(body)
	if err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "%v", err)
	}
	e := d.plugins[m.Name]
	if e != nil && len(e.leases) > 0 && e.manifest.Hash() != m.Hash() {
		return nil, bus.Errorf(bus.CodeConflict, "version %s of %s is there; stop it first", e.manifest.Version, m.Name)
	}
	if e == nil || len(e.leases) == 0 {
		e = &entry{manifest: m, leases: map[subject.Instance]plugin.LeaseState{}, state: plugin.Active}
		d.plugins[m.Name] = e
	}
	e.leases[m.Instance] = ""
	return d.lease(m.Name, m.Instance, e), nil
}

func (d *desk) heartbeat(name subject.Plugin, body []byte) (*plugin.Lease, error) {
	var h plugin.Heartbeat
	if err := json.Unmarshal(body, &h); err != nil {
		return nil, err
	}
	e := d.plugins[name]
	if e == nil || e.manifest.Hash() != h.Hash {
		return nil, bus.Errorf(bus.CodeNotFound, "%s is not registered", name)
	}
	if _, ok := e.leases[h.Instance]; !ok {
		return nil, bus.Errorf(bus.CodeNotFound, "%s of %s is not registered", h.Instance, name)
	}
	return d.lease(name, h.Instance, e), nil
}

func (d *desk) unregister(name subject.Plugin, body []byte) (*plugin.Lease, error) {
	var u plugin.Unregister
	if err := json.Unmarshal(body, &u); err != nil {
		return nil, err
	}
	e := d.plugins[name]
	if e == nil {
		return nil, bus.Errorf(bus.CodeNotFound, "%s is not registered", name)
	}
	state, ok := e.leases[u.Instance]
	switch {
	case !ok:
		return nil, bus.Errorf(bus.CodeNotFound, "%s of %s is not registered", u.Instance, name)
	case !u.Force:
		return nil, bus.Errorf(bus.CodeConflict, "others depend on it")
	case state == "":
		e.leases[u.Instance] = plugin.Draining
		return d.lease(name, u.Instance, e), nil
	}
	lease := d.lease(name, u.Instance, e)
	lease.State = plugin.Gone
	delete(e.leases, u.Instance)
	return lease, nil
}

func (d *desk) lease(name subject.Plugin, i subject.Instance, e *entry) *plugin.Lease {
	l := &plugin.Lease{
		Plugin: name, Instance: i, State: e.state, Reason: e.reason, TTLMS: d.ttl.Milliseconds(), Hash: e.manifest.Hash(),
	}
	if e.leases[i] != "" {
		l.State, l.Reason = e.leases[i], ""
	}
	return l
}

// set changes the plugin's state, as a missing dependency or a suspension does.
func (d *desk) set(name subject.Plugin, state plugin.LeaseState, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plugins[name].state, d.plugins[name].reason = state, reason
}

// forget loses the plugin, as a registry does whose bucket was lost.
func (d *desk) forget(name subject.Plugin) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.plugins, name)
}

// with has every question answered by f, unless it returns nothing.
func (d *desk) with(f func(verb subject.PluginVerb, name subject.Plugin, body []byte) (*plugin.Lease, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.override = f
}

func (d *desk) leases(name subject.Plugin) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.plugins[name] == nil {
		return 0
	}
	return len(d.plugins[name].leases)
}

// count is how often a verb was heard.
func (d *desk) count(verb subject.PluginVerb) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(d.heard),
		func(s string) bool { return !strings.HasPrefix(s, string(verb)+" ") }))
}

// await waits until a verb was heard n more times. It is for what goes on and on: what
// comes once may have been heard already.
func (d *desk) await(verb subject.PluginVerb, n int) {
	d.t.Helper()
	want := d.count(verb) + n
	natstest.Eventually(d.t, "the registry hears "+string(verb), func() bool { return d.count(verb) >= want })
}
