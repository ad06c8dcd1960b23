package capture_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/capture"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

// link is a way to a server that can be cut.
type link struct {
	net.Listener

	to    string
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{Listener: l, to: strings.TrimPrefix(to, "nats://")}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			k.pass(c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		k.set(true)
	})
	return k
}

func (k *link) pass(c net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", k.to)
	if k.cut || err != nil {
		_ = c.Close()
		if s != nil {
			_ = s.Close()
		}
		return
	}
	k.conns = append(k.conns, c, s)
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
		}()
	}
}

// set cuts the link, or heals it.
func (k *link) set(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = cut
	for _, c := range k.conns {
		_ = c.Close()
	}
	k.conns = nil
}

// away is a recorder whose way to the bus can be cut.
type away struct {
	*capture.Recorder

	t     *testing.T
	bus   *journal.Journal // never cut
	link  *link
	stats *capture.Stats
	reads chan context.Context
	given chan string // to the transcriber, as a microphone's sound is
}

func newAway(t *testing.T, grace time.Duration) *away {
	t.Helper()
	s := natstest.Start(t, natstest.WithTCP())
	a := &away{t: t, bus: natstest.Connect(t, s), link: newLink(t, s.ClientURL()), reads: make(chan context.Context, 10)}
	a.given = make(chan string, 10)
	natstest.EnsureStreams(t, a.bus)
	here := natstest.ConnectURL(t, "nats://"+a.link.Addr().String())
	a.Recorder, a.stats = startRecorder(t, here, capture.Config{}, capture.Sense{
		Media: senses.MediaMicrophone, Grace: grace, Prepare: func(_ context.Context, p *capture.Perception) (bool, error) {
			a.given <- p.Text
			return true, nil
		}, Read: func(ctx context.Context) error {
			a.reads <- ctx
			<-ctx.Done()
			return ctx.Err()
		},
	})
	a.recording()
	return a
}

func (a *away) recording() {
	a.t.Helper()
	natstest.Eventually(a.t, "it records", func() bool { return a.Off() == "" })
}

func (a *away) perceives(text string) {
	a.t.Helper()
	if !a.Perceive(capture.Perception{At: time.Now(), Text: text, Files: []capture.Recording{
		{Type: "wav", MediaType: "audio/wav", Data: []byte(text)},
	}}) {
		a.t.Fatalf("%s is not taken", text)
	}
}

// stored verifies what was stored, once n were discarded.
func (a *away) stored(n int64, want ...string) {
	a.t.Helper()
	natstest.Eventually(a.t, "all is stored or discarded", func() bool {
		return a.stats.Off.Load() == n && a.stats.Perceived.Load() == int64(len(want))
	})
	in := listenertest.Log(a.t, a.bus, listenertest.Ref)
	files, err := a.bus.Artifacts(natstest.Context(a.t), "")
	if err != nil || len(in) != len(want) || len(files) != len(want) {
		a.t.Fatalf("%d inputs, %d files, %v, want %q", len(in), len(files), err, want)
	}
	if len(a.given) != len(want) {
		a.t.Errorf("%d perceptions left the process, want %q", len(a.given), want)
	}
	for i, w := range want {
		if in[i].Text != w {
			a.t.Errorf("%q, want %q", in[i].Text, w)
		}
	}
}

func TestWhatIsPerceivedAfterTheSwitchIsNeverStored(t *testing.T) {
	a := newAway(t, time.Hour)
	a.link.set(true)
	a.perceives("before")
	turn(t, a.bus, false, "ann")
	a.perceives("after")
	a.perceives("and later")
	a.link.set(false)
	natstest.Eventually(t, "it knows", func() bool { return strings.Contains(a.Off(), "by ann") })
	a.stored(2, "before")
	if a.Perceive(capture.Perception{At: time.Now(), Text: "much later"}) {
		t.Error("it is off, and takes a perception")
	}
	turn(t, a.bus, true, "ann")
	a.recording()
	a.perceives("on again")
	a.stored(3, "before", "on again")
}

// Only the last position can be read afterwards, so that it is unknown when it was off.
func TestWhatIsPerceivedWhileItMayHaveBeenOffIsNeverStored(t *testing.T) {
	a := newAway(t, time.Hour)
	first := <-a.reads
	a.link.set(true)
	turn(t, a.bus, false, "ann")
	a.perceives("after")
	turn(t, a.bus, true, "ann")
	a.link.set(false)
	<-first.Done() // what has not ended is not recorded, either
	<-a.reads
	a.recording()
	a.perceives("on again")
	a.stored(1, "on again")
}

func TestAnInterruptionWithoutASwitchLosesNothing(t *testing.T) {
	a := newAway(t, time.Hour)
	reading := <-a.reads
	a.link.set(true)
	a.perceives("while the bus was away")
	a.link.set(false)
	a.stored(0, "while the bus was away")
	if reading.Err() != nil {
		t.Error("the source was read anew")
	}
}

func TestItStopsWhenNobodyCouldSwitchItOff(t *testing.T) {
	a := newAway(t, 50*time.Millisecond)
	a.link.set(true)
	natstest.Eventually(t, "it stops", func() bool {
		return !a.Media().Recording && strings.Contains(a.Off(), "the bus cannot be reached")
	})
	a.link.set(false)
	a.recording()
	turn(t, a.bus, false, "ann")
	natstest.Eventually(t, "it is off", func() bool { return strings.Contains(a.Off(), "by ann") })
	a.link.set(true)
	a.link.set(false)
	turn(t, a.bus, false, "bob") // it is followed again
	natstest.Eventually(t, "it is still off", func() bool { return strings.Contains(a.Off(), "by bob") })
}
