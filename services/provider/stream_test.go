package provider

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/internal/runes"
)

// collected notes what a stream sends, and when.
type collected struct {
	start  time.Time
	deltas []contract.Delta
	at     []time.Duration
}

func (c *collected) send(d contract.Delta) {
	c.deltas = append(c.deltas, d)
	c.at = append(c.at, time.Since(c.start))
}

func (c *collected) text() (text, reasoning string) {
	for _, d := range c.deltas {
		text += d.Text
		reasoning += d.Reasoning
	}
	return text, reasoning
}

const interval = 25 * time.Millisecond

func collect(limit int) (*stream, *collected) {
	c := &collected{start: time.Now()}
	return newStream(interval, limit, c.send), c
}

func TestPiecesBecomeFewMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := collect(1 << 20)
		for range 1000 { // one second
			s.add("text ", "thought ")
			time.Sleep(time.Millisecond) // synthetic time
		}
		s.close()
		text, reasoning := c.text()
		if text != strings.Repeat("text ", 1000) || reasoning != strings.Repeat("thought ", 1000) {
			t.Errorf("%d and %d bytes arrived", len(text), len(reasoning))
		}
		if n := len(c.deltas); n < 35 || n > 42 {
			t.Errorf("%d messages in a second, want one per %s", n, interval)
		}
		for i, d := range c.deltas {
			if d.N != i {
				t.Errorf("message %d is numbered %d", i, d.N)
			}
			if i > 0 && i < len(c.deltas)-1 && c.at[i]-c.at[i-1] < interval {
				t.Errorf("message %d came %s after the one before", i, c.at[i]-c.at[i-1])
			}
		}
		if c.at[0] != 0 {
			t.Errorf("the first piece waited %s", c.at[0])
		}
	})
}

func TestWhatWaitsGoesOutInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := collect(1 << 20)
		s.add("a", "")
		s.add("b", "")
		time.Sleep(interval + 1) // synthetic time
		synctest.Wait()
		if text, _ := c.text(); text != "ab" {
			t.Errorf("after %s there was %q", interval, text)
		}
		s.close()
		if len(c.deltas) != 2 {
			t.Errorf("closing without anything waiting sent a message: %+v", c.deltas)
		}
	})
}

func TestCloseFlushesAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := collect(1 << 20)
		s.add("a", "")
		s.add("b", "")
		s.close()
		s.add("late", "")
		time.Sleep(time.Second) // synthetic time
		if text, _ := c.text(); text != "ab" {
			t.Errorf("sent %q", text)
		}
	})
}

func TestLargePiecesAreCutAtRunes(t *testing.T) {
	s, c := collect(1 << 20)
	long := "x" + strings.Repeat("漢", 40_000)
	s.add(long, long)
	s.close()
	text, reasoning := c.text()
	if text != long || reasoning != long {
		t.Errorf("%d and %d bytes arrived, want %d", len(text), len(reasoning), len(long))
	}
	for _, d := range c.deltas {
		if len(d.Text) > maxPiece || !utf8.ValidString(d.Text) || !utf8.ValidString(d.Reasoning) {
			t.Errorf("a message of %d bytes, whole runes: %v", len(d.Text), utf8.ValidString(d.Text))
		}
	}
	if piece, rest := runes.Split(strings.Repeat("\x80", maxPiece+10), maxPiece); len(piece) < maxPiece-utf8.UTFMax ||
		len(piece)+len(rest) != maxPiece+10 {
		t.Errorf("bytes that are no text are cut into %d and %d", len(piece), len(rest))
	}
}

func TestStreamHasAnEnd(t *testing.T) {
	s, c := collect(100)
	if !s.add(strings.Repeat("x", 100), "") || s.add("x", "") {
		t.Error("the limit of the text does not hold")
	}
	s.close()
	if text, _ := c.text(); len(text) != 100 {
		t.Errorf("%d bytes were sent, want 100", len(text))
	}
	s, _ = collect(100)
	if s.add("", strings.Repeat("x", 1601)) {
		t.Error("the limit of the reasoning does not hold")
	}
}
