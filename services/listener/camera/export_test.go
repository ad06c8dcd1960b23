package camera

import (
	"bytes"
	"time"
)

// Took reports whether a picture is the last one that was taken from the source.
func (l *Listener) Took(jpeg []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Equal(l.frame, jpeg)
}

// Later lets the last picture have come earlier, as if the time had passed since.
func (l *Listener) Later(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.came = l.came.Add(-d)
}
