package system

// Metrics returns the system's counters.
func (s *System) Metrics() map[string]int64 { return s.metrics() }
