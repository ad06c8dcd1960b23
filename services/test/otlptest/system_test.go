package otlptest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/otlptest"
)

// start starts a system whose environment has the variables.
func start(t *testing.T, env ...string) *foreigntest.System {
	t.Helper()
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	return foreigntest.Start(t)
}

// of returns the spans of the one turn in a session, once its trace is there.
func of(t *testing.T, sink *otlptest.Sink, session string) (turn otlptest.Span, all []otlptest.Span) {
	t.Helper()
	natstest.Eventually(t, "the turn has a trace", func() bool {
		found := sink.Spans(map[string]string{"gen_ai.conversation.id": session, "gen_ai.operation.name": "invoke_agent"})
		if len(found) != 1 {
			return false
		}
		turn, all = found[0], sink.Trace(found[0].Trace)
		return slices.ContainsFunc(all, func(s otlptest.Span) bool { return s.Name == "reflect" })
	})
	return turn, all
}

// named returns the span of a name.
func named(t *testing.T, all []otlptest.Span, name string) otlptest.Span {
	t.Helper()
	i := slices.IndexFunc(all, func(s otlptest.Span) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no span %s in %+v", name, all)
	}
	return all[i]
}

const (
	secret = "the-words-of-a-person"
	write  = `call file_system:write_file {"path":"a.txt","content":"` + secret + `"}`
)

// A turn with a hook and a refused call: each is a span in its place, the refusal is linked to the person's message, and
// nothing that was said is sent.
func TestATurnIsATrace(t *testing.T) {
	sink := otlptest.New(t)
	s := start(t, sink.Env("http/protobuf")...)
	at, err := s.Invite(natstest.Context(t), rights.Local("guard"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = plugin.Serve(t.Context(), plugin.Manifest{Name: "guard", Version: "1.0.0"}, plugin.Handlers{ // ends with the test
			plugin.BeforeAct(func(context.Context, *plugin.HookCall[hook.ActData]) (plugin.Reply, error) {
				return plugin.Confirm(hook.LevelWarn, "a guard asks"), nil
			}),
		}, plugin.WithConfig(bus.Config{URL: at, Name: "guard", Logger: natstest.Logger(t)}))
	}()
	s.AwaitPlugin("guard", plugin.Active)
	s.Say("one", write)
	turn, all := of(t, sink, "one")
	call := named(t, all, "call file_system:write_file")
	confirm := named(t, all, "confirm file_system:write_file")
	if asked := named(t, all, "hook before_act guard"); asked.Parent != call.ID || asked.Attributes["skandha.hook.verb"] != "confirm" {
		t.Errorf("the hook is %+v", asked)
	}
	if confirm.Parent != call.ID || len(confirm.Links) != 1 || confirm.Links[0] == turn.Trace {
		t.Errorf("the question to a person is %+v", confirm)
	}
	if call.Parent != turn.ID || call.Attributes["skandha.status"] != "denied" || call.Failed {
		t.Errorf("the call is %+v", call)
	}
	for _, span := range all {
		for k, v := range span.Attributes {
			if strings.Contains(v, secret) {
				t.Errorf("%s has %s: %s", span.Name, k, v)
			}
		}
	}
	natstest.Eventually(t, "the time of the hook", func() bool { return sink.Has("skandha", "skandha.hook.duration") })
}

// With content, if the environment asks for it.
func TestContentIsSentWhenAskedFor(t *testing.T) {
	sink := otlptest.New(t)
	s := start(t, append(sink.Env("grpc"), "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true")...)
	s.Say("two", write)
	turn, all := of(t, sink, "two")
	if !strings.Contains(turn.Attributes["skandha.text"], secret) || named(t, all, "call file_system:write_file").Attributes["gen_ai.tool.call.result"] == "" {
		t.Errorf("the turn is %+v", turn)
	}
}

// A turn continues the trace of the message that caused it, and is not sampled if that was not.
func TestATurnContinuesATrace(t *testing.T) {
	sink := otlptest.New(t)
	s := start(t, sink.Env("http/protobuf")...)
	say := func(session subject.Session, flags trace.TraceFlags) trace.SpanContext {
		sc := trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1, byte(flags), 3, 15: byte(len(session))}, SpanID: trace.SpanID{4, 5, 6}, TraceFlags: flags, Remote: true,
		})
		ctx := trace.ContextWithRemoteSpanContext(natstest.Context(t), sc)
		ref := subject.Ref{Agent: "main", Session: session}
		items, err := s.Client.Follow(ctx, ref)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Client.Say(ctx, ref, event.Input{Text: "call time:now {}"}); err != nil {
			t.Fatal(err)
		}
		for i := range items {
			if i.Event.Type == event.TypeRecorded {
				break
			}
		}
		return sc
	}
	dark := say("dark", 0)
	lit := say("light", trace.FlagsSampled)
	turn, all := of(t, sink, "light")
	if turn.Trace != lit.TraceID().String() || turn.Parent != lit.SpanID().String() {
		t.Errorf("the turn is %+v, in the trace %s below %s", turn, lit.TraceID(), lit.SpanID())
	}
	named(t, all, "execute_tool time:now")
	if got := sink.Trace(dark.TraceID().String()); len(got) > 0 {
		t.Errorf("spans of a trace that is not sampled: %+v", got)
	}
}

// A sampler that takes none has none, of no process.
func TestNothingIsSampled(t *testing.T) {
	sink := otlptest.New(t)
	s := start(t, append(sink.Env("http/protobuf"), "OTEL_TRACES_SAMPLER=always_off")...)
	s.Say("none", "call time:now {}")
	natstest.Eventually(t, "the metric of the turn", func() bool { return sink.Has("skandha", "skandha.turn.duration") })
	s.Stop()
	if got := sink.Spans(nil); len(got) > 0 {
		t.Errorf("spans were sent: %+v", got)
	}
}

// A collector that is away, or refuses, disturbs nothing.
func TestTheCollectorIsAway(t *testing.T) {
	sink := otlptest.New(t)
	sink.Refuse(true)
	s := start(t, sink.Env("http/protobuf")...)
	for range 3 {
		if end := s.Say("away", "call time:now {}"); end.Failed != "" || len(end.Calls) != 1 {
			t.Errorf("the turn ended as %+v", end)
		}
	}
	sink.Refuse(false)
	s.Say("back", "call time:now {}")
	of(t, sink, "back")
}

// What the environment has wrong is named.
func TestAWrongExporterIsNamed(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "pigeon")
	_, err := system.Start(natstest.Context(t), system.Config{Data: t.TempDir(), Provider: "offline", Log: natstest.Logger(t)})
	if err == nil || !strings.Contains(err.Error(), "OTEL_TRACES_EXPORTER") || !strings.Contains(err.Error(), "pigeon") {
		t.Errorf("it starts with %v", err)
	}
}
