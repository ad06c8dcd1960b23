package ffmpeg

import "time"

// The pauses between two tries.
const (
	firstPause = time.Second
	maxPause   = time.Minute
	// steady is how long a child must have run for the next pause to be the first again.
	steady = time.Minute
)

// Backoff says how long to wait before the next try. The zero value is ready.
type Backoff struct {
	First time.Duration // the first pause; default 1 s
	pause time.Duration
}

// Next returns the pause after a child that has run for a time.
func (b *Backoff) Next(ran time.Duration) time.Duration {
	if b.First == 0 {
		b.First = firstPause
	}
	if b.pause == 0 || ran >= steady {
		b.pause = b.First
		return b.pause
	}
	b.pause = min(2*b.pause, maxPause)
	return b.pause
}
