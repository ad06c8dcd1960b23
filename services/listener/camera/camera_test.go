package camera_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/camera"
	"skandha.dev/services/listener/capture"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

func TestItPassesTheSuiteOfListeners(t *testing.T) {
	still, moved := picture(t, false), picture(t, true)
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		natstest.EnsureStreams(t, b)
		cfg := paged()
		cfg.TextTemplate = "{{.event}} at {{.listener}}"
		l, err := camera.New("yard", cfg, camera.Deps{Bus: b, Logger: natstest.Logger(t), Now: tick()})
		if err != nil {
			t.Fatal(err)
		}
		return listenertest.Subject{Listener: l, Text: "motion at yard", Say: func(ctx context.Context, _, _ string) error {
			return move(ctx, b, l, still, moved)
		}}
	})
}

func look(t *testing.T, b *journal.Journal, agent subject.Agent, wait time.Duration) (senses.Picture, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(natstest.Context(t), wait)
	defer cancel()
	caller, err := b.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	body, err := json.Marshal(senses.LookRequest{Agent: agent, Session: listenertest.Ref.Session, Camera: "yard"})
	if err != nil {
		t.Fatal(err)
	}
	var p senses.Picture
	reply, err := caller.Request(ctx, subject.Service(senses.CameraName, senses.VerbLook), senses.CameraName, body)
	if err == nil {
		err = json.Unmarshal(reply, &p)
	}
	return p, err
}

func TestMotionOnThePageIsAnInputWithPictures(t *testing.T) {
	cfg := paged()
	cfg.Masks = []camera.Mask{{X: 0, Y: 0, Width: 0.1, Height: 1}}
	r := newRig(t, cfg, tick()).start()
	if err := move(natstest.Context(t), r.bus, r.Listener, picture(t, false), picture(t, true)); err != nil {
		t.Fatal(err)
	}
	in := r.inputs(1)[0]
	if in.Origin != "camera:yard" || in.Source != "camera:yard" || !strings.Contains(in.Text, "Camera yard saw motion") ||
		len(in.Files) == 0 || in.Files[0].MediaType != "image/jpeg" {
		t.Errorf("%+v", in)
	}
	data, err := r.bus.GetArtifact(natstest.Context(t), in.Files[0].Ref)
	if err != nil || int64(len(data)) != in.Files[0].Bytes || !in.Files[0].In(listenertest.Ref) {
		t.Errorf("the artifact %s: %v", in.Files[0].Ref, err)
	}
	if infos, err := r.bus.Artifacts(natstest.Context(t), ""); err != nil || len(infos) == 0 || !infos[0].File() {
		t.Errorf("%+v, %v: not files, which the general age deletes", infos, err)
	}
}

func TestWhoLooksGetsAPictureOfNow(t *testing.T) {
	r := newRig(t, paged(), nil).start()
	ctx, cancel := context.WithCancel(natstest.Context(t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = send(ctx, r.bus, r.Listener, picture(t, false))
		}
	}()
	natstest.Eventually(t, "it records", func() bool { return r.Media().Recording })
	p, err := look(t, r.bus, "main", natstest.Patience)
	if err != nil || p.Camera != "yard" || len(p.JPEG) == 0 || time.Since(p.At) > time.Minute {
		t.Errorf("%s at %s, %v", p.Camera, p.At, err)
	}
	if _, err := look(t, r.bus, "other", natstest.Patience); !errors.Is(err, bus.ErrDenied) || !strings.Contains(err.Error(), "agent main") {
		t.Errorf("another agent looks: %v", err)
	}
	cancel()
	<-ended
	natstest.Eventually(t, "nobody shares a camera", func() bool { // once the pictures on the way have come
		_, err := look(t, r.bus, "main", 50*time.Millisecond)
		return errors.Is(err, bus.ErrUnavailable) || errors.Is(err, bus.ErrTimeout)
	})
	r.turn(false)
	natstest.Eventually(t, "it is off", func() bool { return !r.Media().On })
	if _, err := look(t, r.bus, "main", natstest.Patience); !errors.Is(err, bus.ErrDenied) || !strings.Contains(err.Error(), "switched off by ann") {
		t.Errorf("it is off: %v", err)
	}
}

func TestWhatIsOffIsNotRecorded(t *testing.T) {
	cfg := paged()
	cfg.Start = capture.StartOff
	r := newRig(t, cfg, tick()).start()
	natstest.Eventually(t, "it knows its switch", func() bool { return strings.Contains(r.Off(), "start: off") })
	if h := r.Health(); h.State != contract.StateOK || !strings.Contains(h.Reason, "start: off") {
		t.Errorf("%+v", h)
	}
	ctx, cancel := context.WithTimeout(natstest.Context(t), 100*time.Millisecond)
	defer cancel()
	if err := move(ctx, r.bus, r.Listener, picture(t, false), picture(t, true)); err == nil {
		t.Error("a picture was taken while the camera was off")
	}
	r.turn(true)
	if err := move(natstest.Context(t), r.bus, r.Listener, picture(t, false), picture(t, true)); err != nil {
		t.Fatal(err)
	}
	r.inputs(1)
}

func TestItDoesNotSeeBeforeItKnowsItsSwitch(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	if err := b.JetStream().DeleteStream(natstest.Context(t), "KV_listeners"); err != nil {
		t.Fatal(err)
	}
	l, err := camera.New("yard", paged(), camera.Deps{Bus: b, Logger: natstest.Logger(t), Now: tick()})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.OnStart(natstest.Context(t), listenertest.NewGate(nil)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(natstest.Context(t), 100*time.Millisecond)
	defer cancel()
	if err := send(ctx, b, l, picture(t, false)); err == nil || !strings.Contains(l.Off(), "waiting for the bus") {
		t.Errorf("%v, %q", err, l.Off())
	}
	if err := l.OnStop(natstest.Context(t)); err != nil {
		t.Error(err)
	}
}

func TestDamagedAndHugePicturesOfThePageAreDropped(t *testing.T) {
	r := newRig(t, paged(), tick()).start()
	if err := send(natstest.Context(t), r.bus, r.Listener, picture(t, false)); err != nil {
		t.Fatal(err)
	}
	was := r.stats.Unreadable.Load()
	for _, data := range [][]byte{nil, []byte("no picture"), make([]byte, senses.MaxFrameBytes+1)} {
		if err := r.bus.Conn().Publish(listenertest.Ref.Frame(), data); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, "all are counted", func() bool { return r.stats.Unreadable.Load() >= was+3 })
	if err := send(natstest.Context(t), r.bus, r.Listener, picture(t, false)); err != nil {
		t.Errorf("it takes no pictures any more: %v", err)
	}
}

func TestAFloodOfMotionIsLimitedAndCounted(t *testing.T) {
	cfg := paged()
	cfg.Every = time.Hour
	r := newRig(t, cfg, tick()).start()
	for range 5 {
		if err := move(natstest.Context(t), r.bus, r.Listener, picture(t, false), picture(t, true)); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, "the others are counted", func() bool { return r.stats.Limited.Load() >= 4 })
	if in := r.inputs(1); len(in) != 1 {
		t.Errorf("%d inputs", len(in))
	}
}

func TestWhileTheBusIsAwayPerceptionsAreBounded(t *testing.T) {
	r := newRig(t, paged(), tick())
	r.gate.Hold()
	r.start()
	for range capture.MaxWaiting + 5 {
		if err := move(natstest.Context(t), r.bus, r.Listener, picture(t, false), picture(t, true)); err != nil {
			t.Fatal(err)
		}
	}
	natstest.Eventually(t, "some are dropped", func() bool { return r.stats.Full.Load() >= 4 })
	r.gate.Release()
	if in := r.inputs(capture.MaxWaiting + 1); len(in) != capture.MaxWaiting+1 {
		t.Errorf("%d inputs, want one under way and %d that waited", len(in), capture.MaxWaiting)
	}
}
