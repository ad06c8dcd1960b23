package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/internal/toolschema"
)

// entry are the checks of registration.
func (s *suite) entry() []step {
	return []step{
		{name: "registers", what: "sends its manifest to the registry", run: s.registers, ends: true},
		{name: "manifest", what: "the registry accepts it", needs: []string{"registers"}, run: s.admission, ends: true},
	}
}

const registryResponder = "core"

func isRegister(e passage) bool { return e.sent && e.carries() && isVerb(e.subject, subject.Register) }

func isVerb(subj string, v subject.PluginVerb) bool {
	return strings.HasPrefix(subj, "plugin."+string(v)+".")
}

// registers waits for a registration in any form.
func (s *suite) registers(ctx context.Context, c *check) {
	wait, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	e, ok := s.first.tap.await(wait, s.first.gone, 0, isRegister)
	expected := fmt.Sprintf("a request on plugin.register.<name> within %s", seconds(s.Within))
	if !ok {
		seen, advice := s.silence()
		c.fail(expected, seen, advice)
		return
	}
	var m struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(e.body, &m) // the next check reports what is wrong with it
	_, name, err := subject.ParseRegistry(e.subject)
	switch {
	case err != nil:
		c.fail("the subject plugin.register.<name>, the name an id", e.subject,
			"names are 1 to 64 characters of A-Z a-z 0-9 _ -")
	case m.Name != "" && m.Name != string(name):
		c.fail("the manifest's own name in the subject, plugin.register."+m.Name, e.subject,
			"publish the manifest on plugin.register."+m.Name)
	}
	s.repliable(c, e)
	s.report.Plugin, s.manifest.Name = name, name
}

// silence describes what a process did that did not register.
func (s *suite) silence() (seen, advice string) {
	if how, over := s.first.ended(); over {
		return "the process ended: " + how + lastWords(s.out), "start it by hand with SKANDHA_NATS set to find out why"
	}
	if s.first.tap.connected() == 0 {
		return "it never connected", "connect to the URL in the environment variable SKANDHA_NATS"
	}
	var said []string
	for _, e := range s.first.tap.all() {
		switch {
		case e.sent && (e.carries() || e.verb == "SUB"):
			said = append(said, e.verb+" "+e.subject)
		case e.verb == "-ERR":
			said = append(said, "the bus answered: "+e.text)
		}
	}
	if len(said) > 6 {
		said = append(said[:6], "…")
	}
	return "it connected, and sent: " +
		orNone(said), "publish the manifest (schemas/manifest.v1.json) on plugin.register.<name>, with a reply subject"
}

func lastWords(o *output) string {
	if l := o.lastLine(); l != "" {
		return "; its last output: " + quote([]byte(l))
	}
	return ""
}

// repliable reports a request whose answer core would not send.
func (s *suite) repliable(c *check, e passage) {
	if !subject.IsReplyFrom(e.reply, registryResponder) {
		me := string(s.name())
		c.fail("a request with the reply subject reply."+me+".core.<instance>.<n>",
			fmt.Sprintf("the reply subject %q of %s", e.reply, e.subject),
			"subscribe to reply."+me+".*.<instance>.* and ask with the reply subject reply."+me+".core.<instance>.<n>, "+
				"n in base 36: core answers nowhere else")
	}
}

// admission checks the manifest against the schema and the registry's rules, and waits for the
// registry's answer.
func (s *suite) admission(ctx context.Context, c *check) {
	e, ok := s.first.tap.await(ctx, nil, 0, isRegister)
	if !ok {
		return
	}
	s.inspect(c, e.body)
	lease, err := s.word(ctx, s.first)
	switch {
	case err != nil && c.ok():
		c.fail("a lease for the manifest", err.Error(), "the registry's message says what to change")
	case err == nil && lease.Hash != "":
		s.hash = lease.Hash
	}
	if !c.ok() {
		return
	}
	for _, name := range s.manifest.Dependencies {
		c.note(fmt.Sprintf("it depends on %s, which is replaced by a plugin that does nothing", name))
		s.standIn(s.Options, name)
	}
	if why := s.admitted(ctx, s.first); why != "" {
		c.fail("state active within "+seconds(s.Within), why,
			"see the reason; in a running system, skandha plugins show prints it")
	}
}

func (s *suite) inspect(c *check, body []byte) {
	const expected, advice = "a manifest by schemas/manifest.v1.json",
		"change it there; a path such as tools[1].name counts from 0"
	m, err := plugin.DecodeManifest(body)
	var problems plugin.Problems
	switch {
	case errors.As(err, &problems):
		for _, p := range problems {
			c.fail(expected, p.String(), advice)
		}
	case err != nil:
		c.fail(expected, err.Error(), advice)
	default:
		for _, p := range s.contract.problems("manifest.v1.json", body) {
			c.fail(expected, p, advice)
		}
	}
	for i, t := range m.Tools {
		if _, err := toolschema.Compile(t); err != nil && len(problems) == 0 {
			c.fail(expected, fmt.Sprintf("tools[%d].args: %v", i, err), advice)
		}
	}
	name := s.manifest.Name
	s.manifest = m
	if m.Name == "" {
		s.manifest.Name = name
	}
	s.report.Version = m.Version
}

// word returns the registry's answer to a registration. While no core is available, the
// plugin asks again.
func (s *suite) word(ctx context.Context, p *process) (l plugin.Lease, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	e, ok := p.tap.await(ctx, p.gone, 0, answers(isRegister))
	if !ok {
		return l, errors.New("the registry's answer did not reach the plugin; is it subscribed to its reply subject?")
	}
	if code := e.header.Get(bus.ErrorHeader); code != "" {
		var w bus.Error
		if json.Unmarshal(e.body, &w) != nil || w.Message == "" {
			w.Message = code
		}
		return l, fmt.Errorf("%s: %s", code, w.Message)
	}
	return l, json.Unmarshal(e.body, &l)
}

// answers finds the first answer to a matching request, except those that report that
// there are no responders. It is for one await, which passes it everything in order.
func answers(fits func(passage) bool) func(passage) bool {
	asked := map[string]bool{}
	return func(e passage) bool {
		if fits(e) {
			asked[e.reply] = true
		}
		code := bus.Code(e.header.Get(bus.ErrorHeader))
		return !e.sent && e.carries() && asked[e.subject] && e.header.Get("Status") != "503" && code != bus.CodeUnavailable &&
			code != bus.CodeTimeout
	}
}

// instanceOf returns the instance id of a process's last registration.
func instanceOf(p *process) subject.Instance {
	list := p.tap.published(func(subj string) bool { return isVerb(subj, subject.Register) })
	if len(list) == 0 {
		return ""
	}
	var m struct {
		Instance subject.Instance `json:"instance"`
	}
	_ = json.Unmarshal(list[len(list)-1].body, &m) // checked before
	return m.Instance
}

// admitted waits until a process of the plugin is active; otherwise it returns why it is not.
func (s *suite) admitted(ctx context.Context, p *process) (why string) {
	wait, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	if _, ok := p.tap.await(wait, p.gone, 0, isRegister); !ok {
		if how, over := p.ended(); over {
			return "the process ended: " + how + lastWords(s.out)
		}
		return "it did not register within " + seconds(s.Within)
	}
	active := func(*registry.Snapshot) bool {
		state, there := s.lease(s.name(), instanceOf(p))
		return there && state == plugin.Active
	}
	if s.awaitSnapshot(wait, s.Within, active) {
		return ""
	}
	now := s.view.Snapshot().Get(s.name())
	switch _, there := s.lease(s.name(), instanceOf(p)); {
	case now == nil:
		return "it is not in the registry"
	case !there:
		return fmt.Sprintf("the instance %s has no lease", instanceOf(p))
	default:
		return strings.TrimSuffix(fmt.Sprintf("state %s: %s", now.State, now.Reason), ": ")
	}
}

// since returns when a process first registered, and how many times it has.
func since(p *process) (at time.Time, times int) {
	list := p.tap.published(func(subj string) bool { return isVerb(subj, subject.Register) })
	if len(list) == 0 {
		return time.Now(), 0
	}
	return list[0].at, len(list)
}
