package shell_test

import (
	"errors"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/test/natstest"
)

// In the last tenth of the log inputs are refused, with what to do about it, and a turn that runs ends. When the log
// may be larger, inputs are taken again.
func TestTheLastOfTheLogIsForWhatRuns(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{})
	js, ctx := s.bus.JetStream(), natstest.Context(t)
	limit := func(bytes int64) {
		t.Helper()
		stream, err := js.Stream(ctx, bus.StreamSessions)
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		cfg.MaxBytes = bytes
		if _, err := js.UpdateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	}
	held, release := make(chan struct{}, 1), make(chan struct{})
	s.model = func(m provider.Message) provider.Response {
		if m.Text == "hold" {
			held <- struct{}{}
			<-release
		}
		return provider.Response{TextContent: "done"}
	}
	ref := subject.Ref{Agent: "main", Session: "runs"}
	events := s.follow(ref)
	s.say(ref, event.Input{Text: "hold"})
	<-held
	other := subject.Ref{Agent: "main", Session: "other"}
	send := func(padding int) error {
		body := `{"text":"hello","padding":"` + strings.Repeat("x", padding) + `"}`
		_, err := s.bus.PublishCause(ctx, other, subject.Input, "test", "", []byte(body))
		return err
	}
	for range 4 {
		if err := send(500_000); err != nil {
			t.Fatal(err)
		}
	}
	info, err := s.bus.LogInfo(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	limit(int64(info.State.Bytes) / 92 * 100) //nolint:gosec // a small log
	natstest.Eventually(t, "core says that the log is nearly full", func() bool { return s.bus.Overload() != nil })
	err = send(0)
	if !errors.Is(err, bus.ErrOverloaded) || !strings.Contains(err.Error(), "streams.max_bytes") {
		t.Errorf("an input is refused with %v", err)
	}
	close(release)
	s.await(events, event.TypeRecorded)
	limit(-1)
	natstest.Eventually(t, "inputs are taken", func() bool { return send(0) == nil })
}
