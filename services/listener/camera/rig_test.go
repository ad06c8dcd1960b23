package camera_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/camera"
	"skandha.dev/services/listener/capture"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

// picture is a gray JPEG, with or without a white square.
func picture(tb testing.TB, square bool) []byte {
	tb.Helper()
	img := image.NewGray(image.Rect(0, 0, 160, 120))
	draw.Draw(img, img.Bounds(), image.NewUniform(color.Gray{Y: 128}), image.Point{}, draw.Src)
	if square {
		draw.Draw(img, image.Rect(40, 40, 90, 90), image.White, image.Point{}, draw.Src)
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, nil); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// tick is a clock that goes on by a second whenever it is read.
func tick() func() time.Time {
	var n atomic.Int64
	return func() time.Time { return time.Unix(1764115200+n.Add(1), 0) }
}

// paged is a camera of the page.
func paged() camera.Config {
	return camera.Config{
		Page:   true,
		Config: capture.Config{Session: string(listenertest.Ref.Session), Every: time.Nanosecond},
		Motion: camera.Motion{After: time.Millisecond, Quiet: 2 * time.Second},
	}
}

// filmed is a camera that plays a film.
func filmed(source ffmpeg.Source) camera.Config {
	return camera.Config{
		Source: source, FPS: 5,
		Config: capture.Config{Session: string(listenertest.Ref.Session), Every: time.Nanosecond},
		Motion: camera.Motion{After: 500 * time.Millisecond, Quiet: time.Second},
	}
}

type rig struct {
	*camera.Listener

	t     *testing.T
	bus   *journal.Journal
	gate  *listenertest.Gate
	stats *capture.Stats
}

func newRig(t *testing.T, cfg camera.Config, now func() time.Time) *rig {
	t.Helper()
	b := natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, b)
	r := &rig{t: t, bus: b, stats: &capture.Stats{}}
	var err error
	r.Listener, err = camera.New("yard", cfg, camera.Deps{Bus: b, Logger: natstest.Logger(t), Now: now, Stats: r.stats})
	if err != nil {
		t.Fatal(err)
	}
	r.gate = listenertest.NewGate(emitter.New(b.Bus, "yard", &emitter.Stats{}, natstest.Logger(t)))
	return r
}

func (r *rig) start() *rig {
	r.t.Helper()
	if err := r.OnStart(natstest.Context(r.t), r.gate); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.OnStop(ctx)
	})
	return r
}

func (r *rig) inputs(n int) []listenertest.Stored {
	r.t.Helper()
	var in []listenertest.Stored
	natstest.Eventually(r.t, "the inputs", func() bool {
		in = listenertest.Log(r.t, r.bus, listenertest.Ref)
		return len(in) >= n
	})
	return in
}

func (r *rig) turn(on bool) {
	r.t.Helper()
	if _, err := senses.Turn(natstest.Context(r.t), r.bus, "yard", on, "ann"); err != nil {
		r.t.Fatal(err)
	}
}

var sent atomic.Uint64

// send sends a picture as the page does, and returns when the listener has taken it.
func send(ctx context.Context, b *journal.Journal, l *camera.Listener, jpeg []byte) error {
	jpeg = binary.BigEndian.AppendUint64(bytes.Clone(jpeg), sent.Add(1)) // after its end, to tell it from others
	for n := 0; !l.Took(jpeg) && l.Off() != "stopped"; n++ {
		if n%50 == 0 { // it may not be subscribed yet
			if err := b.Conn().Publish(listenertest.Ref.Frame(), jpeg); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond): // a poll; nothing is decided by it
		}
	}
	return nil
}

// move lets something move before the page's camera.
func move(ctx context.Context, b *journal.Journal, l *camera.Listener, still, moved []byte) error {
	for i := range 9 {
		jpeg := still
		if i > 5 {
			jpeg = moved
		}
		if err := send(ctx, b, l, jpeg); err != nil {
			return err
		}
	}
	return nil
}
