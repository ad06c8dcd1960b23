package microphone

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"skandha.dev/services/internal/bounds"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// sound is so much of a tone, of a loudness in decibels below full scale.
func sound(d time.Duration, loudness float64) []byte {
	n := int(d.Seconds() * rate)
	out := make([]byte, 0, 2*n)
	peak := math.Sqrt2 * math.Pow(10, loudness/20) * 32767
	for i := range n {
		out = binary.LittleEndian.AppendUint16(out, uint16(int16(peak*math.Sin(float64(i)/5)))) //nolint:gosec // as PCM does
	}
	return out
}

// hear passes sound through a gate and returns the segments.
func hear(cfg Speech, pieces ...[]byte) (out []segment) {
	g := newGate(bounds.Filled(cfg), noon)
	all := bytes.Join(pieces, nil)
	for ; len(all) >= frameBytes; all = all[frameBytes:] {
		if s, ok := g.hear(all[:frameBytes]); ok {
			out = append(out, s)
		}
	}
	if s, ok := g.end(); ok {
		out = append(out, s)
	}
	return out
}

func TestSpeechIsASegmentWithWhatSurroundsIt(t *testing.T) {
	got := hear(Speech{}, sound(2*time.Second, -70), sound(time.Second, -20), sound(2*time.Second, -70))
	if len(got) != 1 {
		t.Fatalf("%d segments", len(got))
	}
	// 300 ms before, the second, and 800 ms of silence.
	if d := length(got[0].pcm); d < 2*time.Second || d > 2200*time.Millisecond {
		t.Errorf("it is %s long", d)
	}
	if began := got[0].began.Sub(noon); began < 1600*time.Millisecond || began > 1800*time.Millisecond {
		t.Errorf("it began after %s", began)
	}
}

func TestWhatIsNoSpeech(t *testing.T) {
	for name, pieces := range map[string][][]byte{
		"silence":         {make([]byte, 10*bytesPerSec)},
		"quiet":           {sound(10*time.Second, -60)},
		"a click":         {sound(2*time.Second, -70), sound(100*time.Millisecond, -10), sound(2*time.Second, -70)},
		"nothing":         nil,
		"a steady murmur": {sound(20*time.Second, -42)},
	} {
		if got := hear(Speech{}, pieces...); len(got) != 0 {
			t.Errorf("%s: %d segments", name, len(got))
		}
	}
}

func TestTwoSentencesAreTwoSegments(t *testing.T) {
	word, gap, silence := sound(time.Second, -25), sound(300*time.Millisecond, -65), sound(1500*time.Millisecond, -65)
	if got := hear(Speech{}, silence, word, gap, word, silence, word, silence); len(got) != 2 {
		t.Errorf("%d segments", len(got))
	}
}

// A noise that does not end becomes a part of the noise floor, and speech is heard above it.
func TestOneLongNoise(t *testing.T) {
	cfg := Speech{MaxSpeech: 5 * time.Second}
	noise := sound(60*time.Second, -30)
	got := hear(cfg, sound(time.Second, -70), noise)
	if len(got) == 0 || len(got) > 4 {
		t.Errorf("%d segments of noise, want at most 4", len(got))
	}
	for _, s := range got {
		if length(s.pcm) > cfg.MaxSpeech {
			t.Errorf("a segment of %s", length(s.pcm))
		}
	}
	more := hear(cfg, sound(time.Second, -70), noise, sound(time.Second, -8), sound(2*time.Second, -30))
	if len(more) != len(got)+1 {
		t.Errorf("%d segments, want %d and the speech", len(more), len(got))
	}
}

func TestLongSpeechIsCut(t *testing.T) {
	var talk [][]byte
	for range 20 { // words and short gaps
		talk = append(talk, sound(700*time.Millisecond, -25), sound(300*time.Millisecond, -70))
	}
	got := hear(Speech{MaxSpeech: 6 * time.Second}, append([][]byte{sound(time.Second, -70)}, talk...)...)
	if len(got) < 3 || len(got) > 4 {
		t.Errorf("%d segments", len(got))
	}
}

func FuzzGate(f *testing.F) {
	f.Add(sound(500*time.Millisecond, -10), int16(100))
	f.Add([]byte{0xff, 0x7f, 0, 0x80}, int16(30))
	f.Add([]byte{}, int16(1))
	f.Fuzz(func(t *testing.T, pcm []byte, most int16) {
		cfg := bounds.Filled(Speech{MaxSpeech: time.Duration(max(1, most)) * frameTime})
		total := 0
		for _, s := range hear(cfg, bytes.Repeat(pcm, 3)) {
			// The gate looks back when speech begins.
			if over := length(s.pcm) - cfg.MaxSpeech; over > (preRollFrames+attackFrames)*frameTime {
				t.Fatalf("a segment of %s, at most %s", length(s.pcm), cfg.MaxSpeech)
			}
			if s.began.Before(noon) {
				t.Fatalf("a segment began at %s", s.began)
			}
			total += len(s.pcm)
			if file := wav(s.pcm); len(file) != 44+len(s.pcm) || binary.LittleEndian.Uint32(file[4:])+8 != uint32(len(file)) { //nolint:gosec // small
				t.Fatal("the WAV does not say how long it is")
			}
		}
		if total > 3*len(pcm) {
			t.Fatalf("%d bytes of speech in %d", total, 3*len(pcm))
		}
	})
}
