package microphone_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/capture"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/emitter"
	"skandha.dev/services/listener/microphone"
	"skandha.dev/services/test/ffmpegtest"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

// scribe answers as the provider service does.
type scribe struct {
	mu    sync.Mutex
	text  string
	err   error
	heard []providerapi.TranscribeRequest
}

func (s *scribe) serve(t *testing.T, b *journal.Journal) {
	t.Helper()
	r, err := b.Respond(subject.Service(providerapi.TranscriberName, providerapi.VerbTranscribe), providerapi.TranscriberName,
		providerapi.TranscriberName, func(q *bus.Request) {
			coreapi.Answer(q, func(q *bus.Request) (any, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				var req providerapi.TranscribeRequest
				if err := json.Unmarshal(q.Data, &req); err != nil {
					return nil, err
				}
				s.heard = append(s.heard, req)
				return providerapi.Transcript{Text: s.text, Model: "test/model"}, s.err
			})
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
}

func (s *scribe) says(text string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, s.err = text, err
}

func (s *scribe) first() providerapi.TranscribeRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard[0]
}

func (s *scribe) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.heard)
}

// said is a second of what sounds like speech, and the silence after it.
func said() []byte {
	var out []byte
	for i := range 16000 + 8000 {
		v := 0.
		if i < 16000 {
			v = 8000 * math.Sin(float64(i)/5)
		}
		out = binary.LittleEndian.AppendUint16(out, uint16(int16(v))) //nolint:gosec // as PCM does
	}
	return out
}

// pipe is a microphone whose sound a test writes.
func pipe(t *testing.T) (cfg microphone.Config, say func(context.Context) error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sound")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) // both ends, so that neither waits for the other
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	cfg = microphone.Config{
		Command: []string{"cat", path}, Speech: microphone.Speech{Hangover: 200 * time.Millisecond},
		Config: capture.Config{Session: string(listenertest.Ref.Session), Stall: 10 * time.Minute},
	}
	return cfg, func(ctx context.Context) error {
		done := make(chan error, 1)
		go func() {
			_, err := f.Write(said())
			done <- err
		}()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type rig struct {
	*microphone.Listener

	t     *testing.T
	bus   *journal.Journal
	gate  *listenertest.Gate
	stats *capture.Stats
	say   func(context.Context) error
}

func newRig(t *testing.T, change func(*microphone.Config)) *rig {
	t.Helper()
	b := natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, b)
	cfg, say := pipe(t)
	if change != nil {
		change(&cfg)
	}
	r := &rig{t: t, bus: b, say: say, stats: &capture.Stats{}}
	var err error
	r.Listener, err = microphone.New("ear", cfg, microphone.Deps{Bus: b, Logger: natstest.Logger(t), Stats: r.stats})
	if err != nil {
		t.Fatal(err)
	}
	r.gate = listenertest.NewGate(emitter.New(b.Bus, "ear", &emitter.Stats{}, natstest.Logger(t)))
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

func (r *rig) speak(times int) {
	r.t.Helper()
	for range times {
		if err := r.say(natstest.Context(r.t)); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) inputs(n int) (in []listenertest.Stored) {
	r.t.Helper()
	natstest.Eventually(r.t, "the inputs", func() bool {
		in = listenertest.Log(r.t, r.bus, listenertest.Ref)
		return len(in) >= n
	})
	return in
}

func TestItPassesTheSuiteOfListeners(t *testing.T) {
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		s := &scribe{text: "what was said"}
		s.serve(t, b)
		cfg, say := pipe(t)
		l, err := microphone.New("ear", cfg, microphone.Deps{Bus: b, Logger: natstest.Logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		return listenertest.Subject{Listener: l, Text: "what was said", Say: func(ctx context.Context, _, _ string) error {
			return say(ctx)
		}}
	})
}

func TestSpeechIsAnInputWithItsSound(t *testing.T) {
	r := newRig(t, func(c *microphone.Config) { c.Language, c.Prompt = "en", "Skandha" })
	s := &scribe{text: "  open the window\n"}
	s.serve(t, r.bus)
	r.start().speak(1)
	in := r.inputs(1)[0]
	if in.Text != "open the window" || in.Origin != "microphone:ear" || len(in.Files) != 1 ||
		in.Files[0].MediaType != "audio/wav" || !in.Files[0].In(listenertest.Ref) {
		t.Errorf("%+v", in)
	}
	audio, err := r.bus.GetArtifact(natstest.Context(t), in.Files[0].Ref)
	if err != nil || string(audio[:4]) != "RIFF" || string(s.first().Audio) != string(audio) {
		t.Errorf("%d bytes of sound, %v", len(audio), err)
	}
	if q := s.first(); q.Language != "en" || q.Prompt != "Skandha" || q.MediaType != "audio/wav" {
		t.Errorf("asked with %s, %q, %s", q.Language, q.Prompt, q.MediaType)
	}
}

func TestWhatHasNoWordsIsDropped(t *testing.T) {
	r := newRig(t, nil)
	(&scribe{}).serve(t, r.bus)
	r.start().speak(1)
	natstest.Eventually(t, "it is counted", func() bool { return r.stats.Nothing.Load() == 1 })
	files, err := r.bus.Artifacts(natstest.Context(t), "")
	if in := listenertest.Log(t, r.bus, listenertest.Ref); len(in) != 0 || len(files) != 0 || err != nil {
		t.Errorf("%+v, %+v, %v", in, files, err)
	}
}

func TestSpeechWaitsForATranscriber(t *testing.T) {
	r := newRig(t, nil).start()
	r.speak(1)
	natstest.Eventually(t, "it waits", func() bool {
		h := r.Health()
		return h.State == contract.StateDegraded && strings.Contains(h.Reason, "no provider process has a transcriber")
	})
	s := &scribe{err: bus.Errorf(bus.CodeUnavailable, "the model is loading")}
	s.serve(t, r.bus)
	natstest.Eventually(t, "it is asked again", func() bool { return s.asked() > 1 })
	s.says("at last", nil)
	if in := r.inputs(1); in[0].Text != "at last" {
		t.Errorf("%+v", in)
	}
	natstest.Eventually(t, "it is healthy", func() bool { return r.Health().State == contract.StateOK })
}

func TestSpeechThatCannotBeTranscribedIsSaidToBe(t *testing.T) {
	r := newRig(t, func(c *microphone.Config) { c.Patience = time.Second })
	s := &scribe{err: bus.Errorf(bus.CodeInvalidArgument, "the sound is damaged")}
	s.serve(t, r.bus)
	r.start().speak(1)
	in := r.inputs(1)[0]
	if !strings.Contains(in.Text, "could not be transcribed") || !strings.Contains(in.Text, "the sound is damaged") ||
		len(in.Files) != 1 || s.asked() != 1 {
		t.Errorf("%+v after %d questions", in, s.asked())
	}
	s.says("", bus.Errorf(bus.CodeUnavailable, "the model is loading"))
	r.speak(1)
	if in := r.inputs(2)[1]; !strings.Contains(in.Text, "the model is loading") {
		t.Errorf("%+v", in)
	}
}

func TestWhileNothingIsTranscribedSegmentsAreBounded(t *testing.T) {
	r := newRig(t, nil).start()
	r.speak(capture.MaxWaiting + 4)
	natstest.Eventually(t, "some are dropped", func() bool { return r.stats.Full.Load() >= 2 })
	natstest.Eventually(t, "people can see it", func() bool { return strings.Contains(r.Health().Reason, "were dropped") })
}

func TestWhatIsOffDoesNotHear(t *testing.T) {
	r := newRig(t, nil)
	s := &scribe{text: "secret"}
	s.serve(t, r.bus)
	r.start().speak(1)
	r.inputs(1)
	var pids []int
	natstest.Eventually(t, "a child", func() bool { pids = ffmpegtest.Children(t, os.Getpid()); return len(pids) == 1 })
	turn := func(on bool) {
		if _, err := senses.Turn(natstest.Context(t), r.bus, "ear", on, "ann"); err != nil {
			t.Fatal(err)
		}
		natstest.Eventually(t, "it follows", func() bool { return r.Media().On == on })
	}
	turn(false)
	natstest.Eventually(t, "it says who switched it off", func() bool { return strings.Contains(r.Off(), "switched off by ann") })
	if ffmpegtest.Alive(pids[0]) {
		t.Errorf("child %d lives", pids[0])
	}
	turn(true)
	r.speak(1)
	r.inputs(2)
}

func TestSpeechInAFile(t *testing.T) {
	file := ffmpegtest.Make(t, "a.wav", "-f", "lavfi", "-i", "sine=f=300:d=6", "-af",
		"volume='if(between(t,2,3.5),0.9,0.0005)':eval=frame", "-ar", "44100", "-ac", "2")
	r := newRig(t, func(c *microphone.Config) { c.Command, c.Source = nil, ffmpeg.Source{File: file, Fast: true} })
	s := &scribe{text: "a tone"}
	s.serve(t, r.bus)
	r.start()
	in := r.inputs(1)
	natstest.Eventually(t, "the end", func() bool { return strings.Contains(r.Off(), "its file has ended") })
	if in[0].Text != "a tone" || s.asked() != 1 {
		t.Errorf("%+v, asked %d times", in, s.asked())
	}
	if n := in[0].Files[0].Bytes; n < 60000 || n > 100000 {
		t.Errorf("%d bytes, want about two and a half seconds", n)
	}
}

func TestADeviceThatIsNotThere(t *testing.T) {
	ffmpegtest.Need(t)
	r := newRig(t, func(c *microphone.Config) { c.Command, c.ALSA = nil, "hw:42,0" }).start()
	natstest.Eventually(t, "it is down", func() bool {
		h := r.Health()
		return h.State == contract.StateDown && strings.Contains(h.Reason, "hw:42,0")
	})
}

func TestRecordingsAreDeleted(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().Unix())
	b := natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, b)
	ctx := natstest.Context(t)
	for i := range 5 {
		// The names that an earlier process has given, and one of another listener.
		name := fmt.Sprintf("main/conformance/uploads/ear.20261126T12000%dZ.id-1.wav", i)
		if err := b.PutArtifact(ctx, name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []string{"ear-2.20261126T120000Z.id-1.wav", "ear.notes.txt"} {
		if err := b.PutArtifact(ctx, "main/conformance/uploads/"+other, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	cfg, _ := pipe(t)
	cfg.KeepFiles = 2
	stats := &capture.Stats{}
	l, err := microphone.New("ear", cfg, microphone.Deps{Bus: b, Logger: natstest.Logger(t), Stats: stats})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.OnStart(ctx, listenertest.NewGate(nil)); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "three are deleted", func() bool { return stats.Deleted.Load() == 3 })
	if err := l.OnStop(ctx); err != nil {
		t.Fatal(err)
	}
	left, err := b.Artifacts(ctx, "main/conformance/uploads/")
	if err != nil || len(left) != 4 {
		t.Errorf("%+v, %v", left, err)
	}
}

func TestConfigurationsNameWhatIsWrong(t *testing.T) {
	for want, change := range map[string]func(*microphone.Config){
		"0 of them are set": func(c *microphone.Config) { c.Command = nil },
		"2 of them are set": func(c *microphone.Config) { c.ALSA = "default" },
		"alsa is":           func(c *microphone.Config) { c.Command, c.ALSA = nil, "-f lavfi" },
		"pulse is":          func(c *microphone.Config) { c.Command, c.Pulse = nil, "a\nb" },
		"language is":       func(c *microphone.Config) { c.Language = "english" },
		"session is empty":  func(c *microphone.Config) { c.Session = "" },
		"margin is":         func(c *microphone.Config) { c.Margin = 100 },
		"min_speech is":     func(c *microphone.Config) { c.MinSpeech, c.MaxSpeech = 9*time.Second, 2*time.Second },
		"command: name":     func(c *microphone.Config) { c.Command = []string{""} },
	} {
		cfg, _ := pipe(t)
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
