package toolrunner_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/plugincalltest"
	"skandha.dev/services/toolrunner"
)

const cityArgs = `{"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string","default":"C"}},"required":["city"]}`

// weather is a plugin's manifest with one tool.
func weather() plugin.Manifest {
	return plugin.Manifest{Name: "weather", Version: "1.0.0", Tools: []tool.Spec{
		{Name: "weather:now", Description: "Says what the weather is like.", Args: json.RawMessage(cityArgs)},
	}}
}

const weatherSubject = "tool.weather.weather--now"

// plugged is a tool runner on a bus with plugins.
type plugged struct {
	*core
	registry *plugincalltest.Registry
}

func startPlugged(t testing.TB, cfg toolrunner.Config) *plugged {
	t.Helper()
	return startPluggedOn(t, natstest.Start(t), cfg)
}

func startPluggedOn(t testing.TB, s *natsserver.Server, cfg toolrunner.Config) *plugged {
	t.Helper()
	if cfg.PluginGrace == 0 {
		cfg.PluginGrace = 50 * time.Millisecond
	}
	c := startOn(t, s, cfg)
	return &plugged{c, plugincalltest.New(t, c.bus)}
}

// startWeather is one with the plugin weather, which answers with f.
func startWeather(t testing.TB, cfg toolrunner.Config, f func(*nats.Msg)) *plugged {
	t.Helper()
	p := startPlugged(t, cfg)
	plugincalltest.Answer(t, plugincalltest.Client(t, p.server), "weather", weatherSubject, f)
	p.registry.Register(weather(), "w1")
	p.awaitWeather()
	return p
}

// awaitOffer waits for an announcement that fits.
func (c *core) awaitOffer(what string, fits func([]tool.Spec) bool) []tool.Spec {
	c.t.Helper()
	patience := time.After(natstest.Patience)
	for {
		select {
		case a := <-c.announced:
			if fits(a.Tools) {
				return a.Tools
			}
		case <-patience:
			c.t.Fatalf("no announcement: %s", what)
		}
	}
}

func has(name string) func([]tool.Spec) bool {
	return func(s []tool.Spec) bool {
		return slices.ContainsFunc(s, func(t tool.Spec) bool { return t.Name == name })
	}
}

// awaitWeather waits until the plugin's tool is announced.
func (c *core) awaitWeather() tool.Spec {
	c.t.Helper()
	specs := c.awaitOffer("with the plugin's tool", has("weather:now"))
	return specs[slices.IndexFunc(specs, func(t tool.Spec) bool { return t.Name == "weather:now" })]
}

func (c *core) awaitNoWeather() {
	c.t.Helper()
	c.awaitOffer("without the plugin's tool", func(s []tool.Spec) bool { return !has("weather:now")(s) })
}

func respond(body string) func(*nats.Msg) {
	return func(m *nats.Msg) { _ = m.Respond([]byte(body)) }
}

// silent is a plugin that gets calls and answers when the test does.
func silent() (got chan *nats.Msg, f func(*nats.Msg)) {
	got = make(chan *nats.Msg, 100)
	return got, func(m *nats.Msg) { got <- m }
}

func code(r tool.Result) tool.Code {
	if r.Error == nil {
		return ""
	}
	return r.Error.Code
}

func TestAPluginsToolIsOfferedAndRun(t *testing.T) {
	got, f := silent()
	p := startPlugged(t, toolrunner.Config{})
	plugincalltest.Answer(t, plugincalltest.Client(t, p.server), "weather", weatherSubject, f)
	p.registry.Register(weather(), "w1")
	spec := p.awaitWeather()
	if spec.Plugin != "weather" || spec.Description != weather().Tools[0].Description || !json.Valid(spec.Args) {
		t.Fatalf("announced is %+v", spec)
	}
	answers := p.send(executor.OpRun, "t1-c1", "weather:now", `{"city":"Ulm"}`)
	m := <-got
	var call tool.Call
	if err := json.Unmarshal(m.Data, &call); err != nil {
		t.Fatal(err)
	}
	left := time.Until(call.Deadline)
	if call.Call != "t1-c1" || call.Attempt != "n" || call.Agent != "a" || call.Session != "s" || call.Turn != "t" ||
		call.Tool != "weather:now" ||
		string(call.Args) != `{"city":"Ulm","unit":"C"}` || left <= 0 || left > tool.DefaultTimeout {
		t.Errorf("the plugin got %s", m.Data)
	}
	if err := m.Respond([]byte(`{"success": true, "data": {"sky": "grey"}, "metadata": {"source": "window"}}`)); err != nil {
		t.Fatal(err)
	}
	a := p.final(answers)
	if a.State != executor.Finished || !a.Result.Success || string(a.Result.Data) != `{"sky":"grey"}` ||
		a.Result.Metadata["source"] != "window" {
		t.Fatalf("got %+v", a)
	}
	if r := p.call("status:query", `{}`); !strings.Contains(string(r.Data), "weather:now") {
		t.Errorf("status is %s", r.Data)
	}
}

func TestArgumentsThatDoNotFitDoNotReachAPlugin(t *testing.T) {
	got, f := silent()
	p := startWeather(t, toolrunner.Config{}, f)
	r := p.call("weather:now", `{"town":"Ulm"}`)
	if code(r) != tool.CodeInvalidArgs || len(r.Error.Details) == 0 || len(got) > 0 {
		t.Fatalf("got %+v, and the plugin %d calls", r.Error, len(got))
	}
}

// A call that was let pass for one tool does not reach another one of its name.
func TestACallIsForTheToolThatWasApproved(t *testing.T) {
	got, f := silent()
	p := startWeather(t, toolrunner.Config{}, f)
	for digest, runs := range map[string]bool{p.awaitWeather().Digest(): true, "5f70bf18a086007016e948b04aed3b82": false} {
		p.spec = digest
		answers := p.send(executor.OpRun, "t1-c"+digest, "weather:now", `{"city":"Ulm"}`)
		if runs {
			if err := (<-got).Respond([]byte(`{"success": true}`)); err != nil {
				t.Fatal(err)
			}
		}
		a := p.final(answers)
		if ran := a.State == executor.Finished; ran != runs ||
			!runs && (a.State != executor.Refused || !strings.Contains(a.Message, "now another tool")) {
			t.Errorf("spec %s: %+v", digest, a)
		}
	}
	if len(got) > 0 {
		t.Error("the plugin got the call")
	}
}

// Promise 2: whatever a plugin answers, what is said of the call is true. It had
// the request, so a result that cannot be read leaves open whether it ran.
func TestWhatAPluginAnswers(t *testing.T) {
	var body func() *nats.Msg
	p := startWeather(t, toolrunner.Config{}, func(m *nats.Msg) { _ = m.RespondMsg(body()) })
	for name, c := range map[string]struct {
		reply   string
		want    tool.Code
		message string
	}{
		"success":              {`{"success":true,"data":1}`, "", ""},
		"success without data": {` {"success":true} `, "", ""},
		"data that is null":    {`{"success":true,"data":null}`, "", ""},
		"its own failure": {
			`{"success":false,"error":{"code":"tool_failed","message":"no such city"}}`, tool.CodeFailed, "no such city",
		},
		"a failure without a reason": {`{"success":false}`, tool.CodeFailed, "without giving a reason"},
		"a failure without a message": {
			`{"success":false,"error":{"code":"tool_failed","message":""}}`, tool.CodeFailed, "without giving a reason",
		},
		"its arguments make no sense": {
			`{"success":false,"error":{"code":"invalid_arguments","message":"no city"}}`, tool.CodeInvalidArgs, "no city",
		},
		"it does not know itself": {
			`{"success":false,"error":{"code":"outcome_unknown","message":"the line went dead"}}`, tool.CodeOutcomeUnknown,
			"dead",
		},
		// As the specification has them.
		"a failure that is a text": {
			`{"success":false,"data":null,"error":"no such city","metadata":null}`, tool.CodeFailed, "no such city",
		},
		"an error that is no reason": {`{"success":false,"error":""}`, tool.CodeFailed, "without giving a reason"},
		"an error that is a number":  {`{"success":false,"error":7}`, tool.CodeOutcomeUnknown, "error"},
		"an error with more fields": {
			`{"success":false,"error":{"code":"tool_failed","message":"x","why":1}}`, tool.CodeOutcomeUnknown, `"why"`,
		},
		"the output of a program": {`{"stdout":"1\n","stderr":"","result":null}`, "", ""},
		"an output with more":     {`{"stdout":"1\n","stderr":"","sucess":false}`, tool.CodeOutcomeUnknown, `"stdout"`},
		"garbage":                 {"\x00\x01 not JSON", tool.CodeOutcomeUnknown, "not a tool result"},
		"nothing":                 {"", tool.CodeOutcomeUnknown, "empty"},
		"blanks":                  {" \n ", tool.CodeOutcomeUnknown, "empty"},
		"null":                    {"null", tool.CodeOutcomeUnknown, `"success" is missing`},
		"a list":                  {`[{"success":true}]`, tool.CodeOutcomeUnknown, "not a tool result"},
		"a text":                  {`"fine"`, tool.CodeOutcomeUnknown, "not a tool result"},
		"no success":              {`{"data":1}`, tool.CodeOutcomeUnknown, `"success" is missing`},
		"success that is a text":  {`{"success":"true"}`, tool.CodeOutcomeUnknown, "success"},
		"success with an error": {
			`{"success":true,"error":{"code":"tool_failed","message":"x"}}`, tool.CodeOutcomeUnknown, "error",
		},
		"a field that is none": {`{"success":true,"result":1}`, tool.CodeOutcomeUnknown, `"result"`},
		"two results":          {`{"success":true}{"success":false}`, tool.CodeOutcomeUnknown, "follows"},
		"half a result":        {`{"success":true,"data":[1,2`, tool.CodeOutcomeUnknown, "not a tool result"},
		"nested too deep": {
			`{"success":true,"data":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, tool.CodeOutcomeUnknown,
			"not a tool result",
		},
		// Only core may say that a call did not run.
		"not_run": {
			`{"success":false,"error":{"code":"not_run","message":"x"}}`, tool.CodeFailed, "not_run: x",
		},
		"cancelled": {
			`{"success":false,"error":{"code":"cancelled","message":"x"}}`, tool.CodeFailed, "cancelled: x",
		},
		"skipped": {
			`{"success":false,"error":{"code":"skipped","message":"x"}}`, tool.CodeFailed, "skipped: x",
		},
		"denied": {`{"success":false,"error":{"code":"denied","message":"x"}}`, tool.CodeFailed, "denied: x"},
		"confirmation_expired": {
			`{"success":false,"error":{"code":"confirmation_expired","message":"x"}}`, tool.CodeFailed,
			"confirmation_expired: x",
		},
		"unknown_tool": {
			`{"success":false,"error":{"code":"unknown_tool","message":"x"}}`, tool.CodeFailed, "unknown_tool: x",
		},
		"a code that is none": {`{"success":false,"error":{"code":"oops","message":"x"}}`, tool.CodeFailed, "oops: x"},
		"a code that is endless": {
			`{"success":false,"error":{"code":"` + strings.Repeat("x", 100000) + `","message":"x"}}`, tool.CodeFailed, "xxx",
		},
	} {
		t.Run(name, func(t *testing.T) {
			body = func() *nats.Msg { return &nats.Msg{Data: []byte(c.reply)} }
			r := p.call("weather:now", `{"city":"Ulm"}`)
			if code(r) != c.want || r.Success != (c.want == "") {
				t.Fatalf("got %v %+v", r.Success, r.Error)
			}
			if c.want != "" && (!strings.Contains(r.Error.Message, c.message) || len(r.Error.Message) > 5000) {
				t.Errorf("the message is %.300q", r.Error.Message)
			}
			if c.want == tool.CodeOutcomeUnknown && !strings.Contains(c.reply, "dead") &&
				!strings.Contains(r.Error.Message, "weather") {
				t.Errorf("the message does not name the plugin: %q", r.Error.Message)
			}
		})
	}
}

func TestAProgramsOutputIsTheDataOfAResult(t *testing.T) {
	p := startWeather(t, toolrunner.Config{}, respond(`{"stdout":"1\n","stderr":"","result":42}`))
	if r := p.call("weather:now", `{"city":"Ulm"}`); !r.Success ||
		string(r.Data) != `{"stdout":"1\n","stderr":"","result":42}` {
		t.Errorf("got %s, %+v", r.Data, r.Error)
	}
}

func TestAnErrorReplyIsAFailureOfTheTool(t *testing.T) {
	var h string
	p := startWeather(t, toolrunner.Config{}, func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{
			Header: nats.Header{"Skandha-Error": {h}}, Data: []byte(`{"code":"` + h + `","message":"because","retryable":true}`),
		})
	})
	for c, want := range map[string]tool.Code{
		"internal": tool.CodeInternal, "timeout": tool.CodeTimeout, "too_large": tool.CodeTooLarge,
		"unavailable": tool.CodeFailed,
		"not_found":   tool.CodeFailed, "denied": tool.CodeFailed, "cancelled": tool.CodeFailed, "conflict": tool.CodeFailed,
	} {
		h = c
		if r := p.call("weather:now", `{"city":"Ulm"}`); code(r) != want || !strings.Contains(r.Error.Message, "because") {
			t.Errorf("%s: got %+v", c, r.Error)
		}
	}
}

func TestTextThatIsNoUTF8IsMendedAndMetadataIsNotTheRunners(t *testing.T) {
	p := startWeather(t, toolrunner.Config{}, respond(
		`{"success":true,"data":"gr`+"\xff"+`y","metadata":{"artifact":{"ref":"b/other/c/n"},"truncated":true,"mine":1}}`))
	r := p.call("weather:now", `{"city":"Ulm"}`)
	if string(r.Data) != `"gr�y"` || len(r.Metadata) != 1 || r.Metadata["mine"] != 1.0 {
		t.Fatalf("got %s, metadata %v", r.Data, r.Metadata)
	}
}

func TestMetadataIsBounded(t *testing.T) {
	p := startWeather(t, toolrunner.Config{},
		respond(`{"success":true,"metadata":{"x":"`+strings.Repeat("x", 100000)+`"}}`))
	r := p.call("weather:now", `{"city":"Ulm"}`)
	if !r.Success || !strings.Contains(fmt.Sprint(r.Metadata["metadata_error"]), "100") || len(r.Metadata) != 1 {
		t.Fatalf("got %v", r.Metadata)
	}
}

func TestTheFirstAnswerCounts(t *testing.T) {
	p := startWeather(t, toolrunner.Config{}, func(m *nats.Msg) {
		a, err := subject.ParseReply(m.Reply)
		if err != nil {
			t.Error(err)
		}
		for _, other := range []string{
			a.From("other").Subject(), subject.Reply(a.Caller, "weather", a.Instance, a.N+1),
			subject.Reply(a.Caller, "weather", "other", a.N), subject.Reply("other", "weather", a.Instance, a.N),
		} {
			forged := *m
			forged.Reply = other
			if err := forged.Respond([]byte(`{"success":true,"data":"forged"}`)); err != nil {
				t.Error(err)
			}
		}
		for _, data := range []string{"first", "second"} {
			_ = m.Respond([]byte(`{"success":true,"data":"` + data + `"}`))
		}
	})
	for range 20 {
		if r := p.call("weather:now", `{"city":"Ulm"}`); string(r.Data) != `"first"` {
			t.Fatalf("got %s %v", r.Data, r.Error)
		}
	}
}

// A call is sent once, however many callers ask for it.
func TestACallReachesAPluginOnce(t *testing.T) {
	got, f := silent()
	p := startWeather(t, toolrunner.Config{}, f)
	first := p.send(executor.OpRun, "c", "weather:now", `{"city":"Ulm"}`)
	m := <-got
	again := p.send(executor.OpRun, "c", "weather:now", `{"city":"Ulm"}`)
	asked := p.send(executor.OpAsk, "c", "", "")
	<-asked
	if err := m.Respond([]byte(`{"success":true}`)); err != nil {
		t.Fatal(err)
	}
	for _, answers := range []<-chan executor.Answer{first, again, asked} {
		if a := p.final(answers); a.State != executor.Finished || !a.Result.Success {
			t.Fatalf("got %+v", a)
		}
	}
	if len(got) > 0 {
		t.Errorf("the plugin got it %d more times", len(got))
	}
}

func TestTheConfigurationChoosesAmongPluginsTools(t *testing.T) {
	m := weather()
	m.Tools = append(m.Tools,
		tool.Spec{Name: "weather:secret", Description: "d", Args: json.RawMessage(`{"type":"object"}`)},
		tool.Spec{Name: "radar:scan", Description: "d", Args: json.RawMessage(`{"type":"object"}`)},
		tool.Spec{Name: "weather:gpu", Description: "d", Args: json.RawMessage(`{"type":"object"}`), Pool: "gpu"},
		tool.Spec{
			Name: "weather:bad", Description: "d",
			Args: json.RawMessage(`{"type":"object","properties":{"x":{"$ref":"http://elsewhere"}}}`),
		},
		tool.Spec{Name: "time:now", Description: "not the runner's", Args: json.RawMessage(`{"type":"object"}`)},
	)
	p := startPlugged(t, toolrunner.Config{Enable: []string{"weather:*", "time:*"}, Disable: []string{"*:secret"}})
	p.registry.Register(m, "w1")
	specs := p.awaitOffer("the plugin's", has("weather:now"))
	var names []string
	for _, s := range specs {
		names = append(names, s.Name+" "+s.Plugin)
	}
	if !slices.Equal(names, []string{"time:now ", "weather:now weather"}) {
		t.Fatalf("got %q", names)
	}
}

func TestPluginsCanBeLeftOut(t *testing.T) {
	p := startPlugged(t, toolrunner.Config{NoPlugins: true})
	p.registry.Register(weather(), "w1")
	if a := p.final(p.send(executor.OpRun, "c", "weather:now", `{"city":"Ulm"}`)); a.State != executor.Refused ||
		a.Reason != executor.RefusedUnknown {
		t.Fatalf("got %+v", a)
	}
}
