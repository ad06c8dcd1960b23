package capture

import "time"

// Suspend is as if the process had been stopped for an hour until now.
func (r *Recorder) Suspend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beat = r.beat.Add(-time.Hour)
}
