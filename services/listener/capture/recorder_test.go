package capture_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/capture"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

func newRecorder(
	t *testing.T, read func(context.Context) error,
) (r *capture.Recorder, b *journal.Journal, stats *capture.Stats) {
	t.Helper()
	b = natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, b)
	r, stats = startRecorder(t, b, capture.Config{}, capture.Sense{
		Media: senses.MediaCamera, Read: read, Ends: true, FirstPause: time.Millisecond,
	})
	return r, b, stats
}

func startRecorder(
	t *testing.T, b *journal.Journal, cfg capture.Config, sense capture.Sense,
) (r *capture.Recorder, stats *capture.Stats) {
	t.Helper()
	cfg.Session, stats = string(listenertest.Ref.Session), &capture.Stats{}
	r, err := capture.New("eye", cfg, sense, capture.Deps{Bus: b, Logger: natstest.Logger(t), Stats: stats})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.OnStart(natstest.Context(t), emitter.New(b.Bus, "eye", &emitter.Stats{}, natstest.Logger(t))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.OnStop(natstest.Context(t)) })
	return r, stats
}

func turn(t *testing.T, b *journal.Journal, on bool, by string) (revision uint64) {
	t.Helper()
	revision, err := senses.Turn(natstest.Context(t), b, "eye", on, by)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func TestASourceThatEndsIsReadAgainWhenItIsSwitched(t *testing.T) {
	reads := make(chan struct{}, 10)
	r, b, _ := newRecorder(t, func(context.Context) error {
		reads <- struct{}{}
		return ffmpeg.ErrEnded
	})
	natstest.Eventually(t, "the end", func() bool { return strings.Contains(r.Off(), "its file has ended") })
	if is := r.Media(); !is.On || is.Recording {
		t.Errorf("its file has ended, and nobody has switched it off: %+v", is)
	}
	turn(t, b, false, "ann")
	natstest.Eventually(t, "it is off", func() bool { return strings.Contains(r.Off(), "by ann") })
	turn(t, b, false, "bob")
	natstest.Eventually(t, "who was last", func() bool { return strings.Contains(r.Off(), "by bob") })
	turn(t, b, true, "ann")
	natstest.Eventually(t, "the end again", func() bool { return len(reads) == 2 && strings.Contains(r.Off(), "has ended") })
}

// Switched on, recording, and why not are three things: a source that is not there is not switched off.
func TestWhatIsSwitchedOnAndDoesNotRecordIsNotOff(t *testing.T) {
	goes := make(chan struct{})
	var r *capture.Recorder
	ready := make(chan struct{})
	first := true
	r, b, _ := newRecorder(t, func(ctx context.Context) error {
		<-ready
		if first {
			first = false
			return errors.New("no such camera")
		}
		select {
		case <-goes:
			r.Receiving()
		case <-ctx.Done():
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if is := r.Media(); !is.On || is.Recording || is.Follows != 0 {
		t.Errorf("before anything is known: %+v", is)
	}
	close(ready)
	natstest.Eventually(t, "it fails", func() bool { return strings.Contains(r.Health().Reason, "no such camera") })
	if is := r.Media(); !is.On || is.Recording {
		t.Errorf("its source fails: %+v", is)
	}
	close(goes)
	natstest.Eventually(t, "it records", func() bool { return r.Media().Recording })
	r.Idle()
	if is := r.Media(); !is.On || is.Recording {
		t.Errorf("nothing comes any more: %+v", is)
	}
	revision := turn(t, b, false, "ann")
	natstest.Eventually(t, "it confirms", func() bool { return r.Media().Follows == revision })
	if is := r.Media(); is.On || is.Recording {
		t.Errorf("switched off: %+v", is)
	}
	again := turn(t, b, false, "bob")
	natstest.Eventually(t, "it confirms each change", func() bool { return r.Media().Follows == again })
}

// A person who switches it off is shown that it is off once the device is released, not before.
func TestASwitchIsConfirmedWhenTheSourceWasLeft(t *testing.T) {
	left := make(chan struct{})
	asked := make(chan struct{})
	r, b, _ := newRecorder(t, func(ctx context.Context) error {
		<-ctx.Done()
		close(asked)
		<-left
		return ctx.Err()
	})
	natstest.Eventually(t, "it reads", func() bool { return r.Off() == "" })
	revision := turn(t, b, false, "ann")
	<-asked
	if is := r.Media(); !is.On || is.Follows == revision {
		t.Errorf("its source is still open: %+v", is)
	}
	close(left)
	natstest.Eventually(t, "it confirms", func() bool { is := r.Media(); return !is.On && is.Follows == revision })
}

func TestASourceThatFailsIsReadAgain(t *testing.T) {
	fails := 0
	var r *capture.Recorder
	ready := make(chan struct{})
	r, _, stats := newRecorder(t, func(ctx context.Context) error {
		<-ready
		if fails++; fails < 4 {
			return errors.New("no such camera")
		}
		r.Receiving()
		<-ctx.Done()
		return ctx.Err()
	})
	close(ready)
	natstest.Eventually(t, "it is healthy", func() bool {
		h := r.Health()
		return h.State == contract.StateOK && h.Reason == ""
	})
	if n := stats.Restarts.Load(); n != 3 {
		t.Errorf("%d restarts", n)
	}
}

// The quota of the session is no reason not to say what was seen.
func TestAPerceptionWhoseRecordingCannotBeStoredSaysSo(t *testing.T) {
	r, b, stats := newRecorder(t, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if err := b.EnsureStreams(natstest.Context(t), journal.StreamsConfig{MaxSessionArtifactBytes: 1 << 10}); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it is on", func() bool { return r.Off() == "" })
	if !r.Perceive(capture.Perception{At: time.Now(), Text: "Something moved.", Files: []capture.Recording{
		{Type: "jpg", MediaType: "image/jpeg", Data: make([]byte, 2<<10)},
	}}) {
		t.Fatal("it was not taken")
	}
	natstest.Eventually(t, "the input", func() bool { return stats.Perceived.Load() == 1 })
	in := listenertest.Log(t, b, listenertest.Ref)[0]
	if !strings.Contains(in.Text, "Something moved. (A recording could not be stored: ") || len(in.Files) != 0 {
		t.Errorf("%+v", in)
	}
}

func TestConfigurations(t *testing.T) {
	good := capture.Config{Session: "s"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, c := range map[string]capture.Config{
		"session is empty": {}, "start is": {Session: "s", Start: "later"}, "keep": {Session: "s", Keep: time.Second},
		"agent, session or mode": {Session: "a b"}, "text_template": {Session: "s", TextTemplate: "{{"},
		"stall": {Session: "s", Stall: time.Hour}, "every": {Session: "s", Every: -1},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
