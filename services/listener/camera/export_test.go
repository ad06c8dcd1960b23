package camera

import "bytes"

// Took reports whether a picture is the last one that was taken from the source.
func (l *Listener) Took(jpeg []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Equal(l.frame, jpeg)
}
