package toolrunner_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/plugincalltest"
	"skandha.dev/services/toolrunner"
)

const ulm = `{"city":"Ulm"}`

// didNotRun fails the test unless the call was refused: it certainly did not run.
func (p *plugged) didNotRun(a executor.Answer, why string) {
	p.t.Helper()
	if a.State != executor.Refused || a.Result != nil || !strings.Contains(a.Message, why) {
		p.t.Fatalf("got %+v", a)
	}
}

// nobodyKnows fails the test unless the result says that the call may have run.
func (p *plugged) nobodyKnows(a executor.Answer, why string) {
	p.t.Helper()
	if a.State != executor.Finished || a.Result.Success || code(*a.Result) != tool.CodeOutcomeUnknown ||
		!strings.Contains(a.Result.Error.Message, why) {
		p.t.Fatalf("got %+v %+v", a, a.Result)
	}
}

// view is the registry as somebody else sees it.
func (p *plugged) view() *registry.View {
	p.t.Helper()
	v, err := registry.Watch(natstest.Context(p.t), p.bus, natstest.Logger(p.t))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(v.Close)
	return v
}

func TestNobodyListens(t *testing.T) {
	p := startPlugged(t, toolrunner.Config{})
	p.registry.Register(weather(), "w1")
	p.awaitWeather()
	p.didNotRun(p.final(p.send(executor.OpRun, "c", "weather:now", ulm)), "no plugin listens")
	if a := p.final(p.send(executor.OpAsk, "c", "", "")); a.State != executor.Refused {
		t.Fatalf("and it never will: got %+v", a)
	}
}

func TestAPluginThatDiesInMidCall(t *testing.T) {
	got, f := silent()
	p := startPlugged(t, toolrunner.Config{})
	plugincalltest.Core(t, p.server)
	nc := plugincalltest.Client(t, p.server)
	plugincalltest.Answer(t, nc, "weather", weatherSubject, f)
	p.registry.Register(weather(), "w1")
	p.awaitWeather()
	answers := p.send(executor.OpRun, "c", "weather:now", ulm)
	<-got
	nc.Close()
	p.registry.End("weather", "w1")
	p.awaitNoWeather()
	p.nobodyKnows(p.final(answers), "gone")
	if a := p.final(p.send(executor.OpRun, "c2", "weather:now", ulm)); a.State != executor.Refused ||
		a.Reason != executor.RefusedUnknown {
		t.Fatalf("a new call: got %+v", a)
	}
	if r := p.call("time:now", `{}`); !r.Success {
		t.Fatalf("the runner's own tools: got %+v", r)
	}
}

func TestOneOfTwoReplicasDies(t *testing.T) {
	got, f := silent()
	p := startPlugged(t, toolrunner.Config{})
	plugincalltest.Core(t, p.server)
	one, two := plugincalltest.Client(t, p.server), plugincalltest.Client(t, p.server)
	plugincalltest.Answer(t, one, "weather", weatherSubject, f)
	p.registry.Register(weather(), "w1", "w2")
	p.awaitWeather()
	hit := p.send(executor.OpRun, "hit", "weather:now", ulm) // w1 has it
	<-got
	plugincalltest.Answer(t, two, "weather", weatherSubject, respond(`{"success":true,"data":"two"}`))
	one.Close()
	p.registry.End("weather", "w1")
	// The survivor takes what comes now.
	natstest.Eventually(t, "the survivor's answer", func() bool {
		r := p.call("weather:now", ulm)
		return string(r.Data) == `"two"`
	})
	// Of what the other had, nobody can say that it did not run.
	p.registry.End("weather", "w2")
	p.nobodyKnows(p.final(hit), "gone")
}

// At its deadline a call that the dead replica may have had is not said to have
// merely run out of time.
func TestTheDeadlineAfterAReplicaDied(t *testing.T) {
	got, f := silent()
	p := startPlugged(t, toolrunner.Config{})
	plugincalltest.Core(t, p.server)
	plugincalltest.Answer(t, plugincalltest.Client(t, p.server), "weather", weatherSubject, f)
	// The runner has to hear of the end before the deadline, which on a slow machine
	// has to be later.
	for timeout, n := 700*time.Millisecond, 1; ; timeout, n = 2*timeout, n+1 {
		m := weather()
		m.Version = fmt.Sprintf("1.0.%d", n)
		m.Tools[0].TimeoutMS = timeout.Milliseconds()
		p.registry.Register(m, "w1", "w2")
		p.awaitOffer("of this version", func(s []tool.Spec) bool {
			return slices.ContainsFunc(s,
				func(t tool.Spec) bool { return t.Name == "weather:now" && t.TimeoutMS == timeout.Milliseconds() })
		})
		sent := time.Now()
		answers := p.send(executor.OpRun, fmt.Sprintf("c%d", n), "weather:now", ulm)
		if !asked(got, answers) {
			continue
		}
		p.registry.End("weather", "w1")
		p.heard(n)
		inTime := time.Since(sent) < timeout
		if a := p.final(answers); inTime {
			p.nobodyKnows(a, "replica")
			return
		}
	}
}

// asked reports whether the plugin has got the call before that was over.
func asked(got <-chan *nats.Msg, answers <-chan executor.Answer) bool {
	for {
		select {
		case <-got:
			return true
		case a := <-answers:
			if a.State.Final() {
				return false
			}
		}
	}
}

// heard returns when the runner knows all that was written into the registry so far.
func (p *plugged) heard(n int) {
	p.t.Helper()
	name := fmt.Sprintf("fence%d", n)
	p.registry.Register(plugin.Manifest{Name: subject.Plugin(name), Version: "1.0.0", Tools: []tool.Spec{
		{Name: name + ":x", Description: "d", Args: json.RawMessage(`{"type":"object"}`)},
	}}, "f")
	p.awaitOffer("with "+name, has(name+":x"))
}

// While no core answers, no lease can be renewed: a call is not given up for it.
func TestALeaseThatEndsWhileNoCoreAnswers(t *testing.T) {
	got, f := silent()
	p := startWeather(t, toolrunner.Config{}, f)
	answers := p.send(executor.OpRun, "c", "weather:now", ulm)
	m := <-got
	p.registry.End("weather", "w1")
	p.awaitNoWeather()
	for range 2 { // heartbeats, many graces
		if a := <-answers; a.State != executor.Running {
			t.Fatalf("got %+v", a)
		}
	}
	if err := m.Respond([]byte(`{"success":true}`)); err != nil {
		t.Fatal(err)
	}
	if a := p.final(answers); a.State != executor.Finished || !a.Result.Success {
		t.Fatalf("got %+v", a)
	}
}

func TestALateAnswerComesTooLate(t *testing.T) {
	got, f := silent()
	m := weather()
	m.Tools = append(m.Tools, m.Tools[0]) // one without haste
	m.Tools[0].TimeoutMS, m.Tools[1].Name = 500, "weather:then"
	p := startPlugged(t, toolrunner.Config{})
	nc := plugincalltest.Client(t, p.server)
	plugincalltest.Answer(t, nc, "weather", weatherSubject, f)
	plugincalltest.Answer(t, nc, "weather", subject.Tool("weather", "weather:then"), f)
	p.registry.Register(m, "w1")
	p.awaitWeather()
	a := p.final(p.send(executor.OpRun, "c", "weather:now", ulm))
	if a.State != executor.Finished || code(*a.Result) != tool.CodeTimeout {
		t.Fatalf("got %+v", a)
	}
	late := <-got
	if at, ok := bus.Deadline(late.Header); !ok || time.Since(at) < 0 {
		t.Errorf("the plugin got %v, %v", at, ok)
	}
	if err := late.Respond([]byte(`{"success":true,"data":"late"}`)); err != nil {
		t.Fatal(err)
	}
	next := p.send(executor.OpRun, "c2", "weather:then", ulm)
	if err := (<-got).Respond([]byte(`{"success":true,"data":"in time"}`)); err != nil {
		t.Fatal(err)
	}
	if a := p.final(next); string(a.Result.Data) != `"in time"` {
		t.Fatalf("got %+v", a.Result)
	}
	if a := p.final(p.send(executor.OpAsk, "c", "", "")); a.Result == nil || code(*a.Result) != tool.CodeTimeout {
		t.Fatalf("the first call's result has become %+v", a)
	}
}

// The contract cannot cancel a call of a plugin: it has begun, and that is said.
func TestStoppingACallOfAPlugin(t *testing.T) {
	got, f := silent()
	p := startWeather(t, toolrunner.Config{}, f)
	running := p.send(executor.OpRun, "c", "weather:now", ulm)
	m := <-got
	if a := p.final(p.send(executor.OpStop, "c", "", "")); a.State != executor.Stopped {
		t.Fatalf("got %+v", a)
	}
	if a := p.final(running); a.State != executor.Stopped {
		t.Fatalf("got %+v", a)
	}
	if err := m.Respond([]byte(`{"success":true}`)); err != nil {
		t.Fatal(err)
	}
	if a := p.final(p.send(executor.OpAsk, "c", "", "")); a.State != executor.Stopped {
		t.Fatalf("it has become %+v", a)
	}
}

func TestAPluginIsReplacedWhileItsCallRuns(t *testing.T) {
	got, f := silent()
	p := startPlugged(t, toolrunner.Config{PluginGrace: natstest.Patience})
	plugincalltest.Core(t, p.server)
	nc := plugincalltest.Client(t, p.server)
	old := plugincalltest.Answer(t, nc, "weather", weatherSubject, f)
	p.registry.Register(weather(), "w1")
	p.awaitWeather()
	running := p.send(executor.OpRun, "c", "weather:now", ulm)
	m := <-got
	p.registry.End("weather", "w1")
	p.awaitNoWeather()
	if err := errors.Join(old.Unsubscribe(), nc.Flush()); err != nil { // else the server may still give it a call
		t.Fatal(err)
	}
	// Version 2 has another schema under the same name.
	v2 := weather()
	v2.Version = "2.0.0"
	v2.Tools[0].Args = json.RawMessage(`{"type":"object","properties":{"place":{"type":"string"}},"required":["place"]}`)
	plugincalltest.Answer(t, plugincalltest.Client(t, p.server), "weather", weatherSubject,
		respond(`{"success":true,"data":"new"}`))
	p.registry.Register(v2, "w2")
	if spec := p.awaitWeather(); !strings.Contains(string(spec.Args), "place") {
		t.Fatalf("announced is %s", spec.Args)
	}
	if r := p.call("weather:now", ulm); code(r) != tool.CodeInvalidArgs {
		t.Fatalf("the old arguments: got %+v", r)
	}
	if r := p.call("weather:now", `{"place":"Ulm"}`); string(r.Data) != `"new"` {
		t.Fatalf("the new ones: got %+v", r)
	}
	if err := m.Respond([]byte(`{"success":true,"data":"old"}`)); err != nil {
		t.Fatal(err)
	}
	if a := p.final(running); a.State != executor.Finished || string(a.Result.Data) != `"old"` {
		t.Fatalf("the call that ran: got %+v", a)
	}
}

// The same name may have another schema from one moment to the next.
func TestAnotherVersionTakesOver(t *testing.T) {
	p := startWeather(t, toolrunner.Config{}, respond(`{"success":true}`))
	for n := range 10 {
		field := fmt.Sprintf("place%d", n)
		m := weather()
		m.Version = fmt.Sprintf("2.%d.0", n)
		m.Tools[0].Args = json.RawMessage(`{"type":"object","properties":{"` + field + `":{"type":"string"}},"required":["` +
			field + `"]}`)
		p.registry.Register(m, "w1")
		p.awaitOffer(field, func(s []tool.Spec) bool {
			return has("weather:now")(s) && strings.Contains(string(s[len(s)-1].Args), field)
		})
		if r := p.call("weather:now", `{"`+field+`":"Ulm"}`); !r.Success {
			t.Fatalf("%s: got %+v", field, r.Error)
		}
	}
}

// A call that waits for a slot when its plugin leaves certainly did not run.
func TestAPluginLeavesWhileACallWaits(t *testing.T) {
	got, f := silent()
	p := startWeather(t, toolrunner.Config{Slots: 1}, f)
	running := p.send(executor.OpRun, "r", "weather:now", ulm)
	m := <-got
	waiting := p.send(executor.OpRun, "w", "weather:now", ulm)
	if a := <-waiting; a.State != executor.Running {
		t.Fatalf("got %+v", a)
	}
	p.registry.End("weather", "w1")
	p.awaitNoWeather()
	if err := m.Respond([]byte(`{"success":true}`)); err != nil {
		t.Fatal(err)
	}
	if a := p.final(running); a.State != executor.Finished || !a.Result.Success {
		t.Fatalf("got %+v", a)
	}
	p.didNotRun(p.final(waiting), "has left")
	if len(got) > 0 {
		t.Error("the plugin got it all the same")
	}
}

func TestASuspendedPluginIsNotOffered(t *testing.T) {
	p := startWeather(t, toolrunner.Config{}, respond(`{"success":true}`))
	p.registry.Suspend(weather(), "it lies")
	p.awaitNoWeather()
	if a := p.final(p.send(executor.OpRun, "c", "weather:now", ulm)); a.State != executor.Refused {
		t.Fatalf("got %+v", a)
	}
}

// 10 MB come by way of a claim; the result is cut and kept whole.
func TestALargeResult(t *testing.T) {
	body := []byte(`{"success":true,"data":"` + strings.Repeat("x", 10<<20) + `"}`)
	sum := sha256.Sum256(body)
	ref := hex.EncodeToString(sum[:]) + ".1"
	p := startWeather(t, toolrunner.Config{}, func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{bus.ClaimHeader: {ref}}})
	})
	store, err := p.bus.JetStream().ObjectStore(natstest.Context(t), bus.BucketClaims)
	if err == nil {
		_, err = store.PutBytes(natstest.Context(t), ref, body)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := p.call("weather:now", ulm)
	a, _ := r.Metadata["artifact"].(map[string]any)
	if !r.Success || len(r.Data) > result.MaxData || a["size"] != float64(10<<20+2) {
		t.Fatalf("got %d bytes, %v, metadata %v", len(r.Data), r.Error, r.Metadata)
	}
}

// What is behind a claim may be missing, forged or too large. The plugin has
// answered, so the call is not said to have failed, nor to have not run.
func TestAClaimThatCannotBeKept(t *testing.T) {
	refs := make(chan string, 1)
	p := startWeather(t, toolrunner.Config{}, func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{bus.ClaimHeader: {<-refs}}})
	})
	store, err := p.bus.JetStream().ObjectStore(natstest.Context(t), bus.BucketClaims)
	if err != nil {
		t.Fatal(err)
	}
	forged, huge := strings.Repeat("0", 64)+".1", strings.Repeat("1", 64)+".1"
	if _, err := store.PutBytes(natstest.Context(t), forged, []byte(`{"success":true}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.PutBytes(natstest.Context(t), huge, make([]byte, bus.MaxClaimBytes+1)); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]tool.Code{
		"": tool.CodeOutcomeUnknown, "no reference": tool.CodeOutcomeUnknown,
		strings.Repeat("2", 64) + ".1": tool.CodeOutcomeUnknown,
		forged:                         tool.CodeOutcomeUnknown, huge: tool.CodeTooLarge,
	} {
		refs <- ref
		if r := p.call("weather:now", ulm); code(r) != want {
			t.Errorf("%.80q: got %+v", ref, r.Error)
		}
	}
}

// More than fits into an announcement is left out, and the rest stays.
func TestTheAnnouncementHasRoomForSoMuch(t *testing.T) {
	// Half a message, which is small here: every plugin that comes is a new announcement.
	server := natstest.Start(t, natstest.WithConfig(func(c *natsserver.Config) { c.MaxPayload = 1 << 20 }))
	p := startPluggedOn(t, server, toolrunner.Config{})
	const many = 22 // and there is room for 20
	text := strings.Repeat("x", 25<<10)
	for i := range many {
		name := subject.Plugin(fmt.Sprintf("big%02d", i))
		p.registry.Register(plugin.Manifest{Name: name, Version: "1.0.0", Tools: []tool.Spec{
			{Name: string(name) + ":x", Description: text, Args: json.RawMessage(`{"type":"object"}`)},
		}}, subject.Instance("i"+string(name)))
	}
	p.registry.Register(weather(), "w1")
	view := p.view()
	natstest.Eventually(t, "the registrations", func() bool { return len(view.Snapshot().Plugins()) == many+1 })
	specs := p.awaitOffer("a full one", has("weather:now"))
	if n := len(specs); !has("time:now")(specs) || !has("big00:x")(specs) || n < 14+many/2 || n >= 14+many {
		t.Fatalf("announced are %d tools", n)
	}
	for i := range many {
		p.registry.End(subject.Plugin(fmt.Sprintf("big%02d", i)), subject.Instance(fmt.Sprintf("ibig%02d", i)))
	}
	specs = p.awaitOffer("the small one", func(s []tool.Spec) bool { return !has("big00:x")(s) && has("weather:now")(s) })
	if !has("time:now")(specs) {
		t.Fatalf("announced are %d tools", len(specs))
	}
}

// Plugins that come and go cost the runner nothing that stays, and never its own
// tools.
func TestAStormOfPlugins(t *testing.T) {
	p := startPlugged(t, toolrunner.Config{})
	const rounds = 60
	for i := range rounds {
		m := weather()
		m.Name, m.Version = subject.Plugin(fmt.Sprintf("storm%d", i%7)), fmt.Sprintf("1.0.%d", i)
		m.Tools[0].Name = fmt.Sprintf("storm%d:now", i%7)
		p.registry.Register(m, "s")
		if i%3 > 0 {
			p.registry.End(m.Name, "s")
		}
	}
	p.registry.Register(weather(), "w1")
	specs := p.awaitOffer("the last plugin", has("weather:now"))
	if !has("time:now")(specs) {
		t.Fatalf("announced are %d tools", len(specs))
	}
	p.registry.End("weather", "w1")
	p.awaitNoWeather()
}
