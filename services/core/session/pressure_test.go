package session

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"skandha.dev/pkg/subject"
)

// A writer over the limit is reported, now and then while that lasts, and once when half of it is done.
func TestAWriterOverTheLimitIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		p := newPressure(4, func(w subject.Writer, n int) { said = append(said, fmt.Sprint(w, " ", n)) })
		for seq := range uint64(10) {
			p.add(seq, "flood")
			p.add(seq, "flood") // delivered again
		}
		p.add(100, "calm")
		time.Sleep(reportEvery)
		for seq := range uint64(10) {
			p.done(seq)
			p.done(seq)
		}
		p.done(100)
		if want := []string{"flood 4", "flood 9", "flood 0"}; !slices.Equal(said, want) {
			t.Errorf("reported %q, want %q", said, want)
		}
		if len(p.inputs)+len(p.writers) > 0 {
			t.Errorf("%v and %v are left", p.inputs, p.writers)
		}
	})
}
