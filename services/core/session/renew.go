package session

import "skandha.dev/services/core/loader"

// renew drops what the session holds of streams that were lost. Its deliveries are not
// acknowledged, because the ack might apply to another cause with the same sequence. If
// the new log holds their cause, it is delivered again.
func (s *session) renew(m renewMail) {
	clear(s.timers)
	if !m.log {
		return
	}
	s.dropWork()
	s.Directory.Leave(s.claimant)
	for seq := range s.held {
		s.release(seq)
	}
	s.passed = 0
	if s.state != nil {
		s.doubt, s.state = doubt{base: s.state}, nil
	}
}

// vanished handles a held delivery whose cause is not in the log. It reports whether the
// cause was certainly deleted. A log that ends before the cause is another log, or has lost
// its end. In that case the delivery is dropped; if the log holds its cause after all, it
// is delivered again.
func (s *session) vanished(seq uint64) (deleted bool) {
	log, err := s.Bus.LogState(s.ctx)
	if err != nil {
		s.Log.Debug("checking the end of the log", "session", s.ref, "error", err)
		return false
	}
	h := s.held[seq]
	if h == nil || log.Last >= seq && !log.Replaced(h.Time, loader.ClockSkew) {
		return true
	}
	s.Log.WarnContext(s.ctx, "dropping a delivery of a log that was lost", "session", s.ref, "cause", seq, "log_ends", log.Last)
	s.release(seq)
	return false
}
