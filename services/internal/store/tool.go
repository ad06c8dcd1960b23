package store

import "time"

// ToolDelta is one commit's contribution to a tool's statistics. Counts are 0 to
// MaxDelta. Several deltas for one tool add up.
type ToolDelta struct {
	Tool      string
	Used      int64     // calls that ended, successfully or not
	Succeeded int64     // of these, successful ones
	Unknown   int64     // of these, with outcome_unknown
	LatencyMS int64     // summed over the calls, in milliseconds
	At        time.Time // the commit's time; zero leaves LastUsed unchanged
}

// ToolRecord holds the tool statistics of the commit at Rev of one session. The
// commits between After and Rev have none.
type ToolRecord struct {
	Key    Key
	After  uint64 // sequence of an earlier commit; 0 if Rev follows the session's beginning
	Rev    uint64 // 1 to MaxRev, larger than After
	Deltas []ToolDelta
}

// Sum returns the record's contribution to all sums together. VerifyTools compares these
// sums.
func (r ToolRecord) Sum() (sum int64) {
	for _, d := range r.Deltas {
		sum += d.Used + d.Succeeded + d.Unknown + d.LatencyMS
	}
	return sum
}

// ToolStat holds the statistics of a tool over all sessions.
type ToolStat struct {
	Tool           string
	Used           int64
	Succeeded      int64
	Unknown        int64
	TotalLatencyMS int64
	LastUsed       time.Time // the latest At, in UTC to the microsecond
}

// Sum returns the tool's part of all sums.
func (s ToolStat) Sum() int64 { return s.Used + s.Succeeded + s.Unknown + s.TotalLatencyMS }

// SuccessRate returns the expected probability that the next call succeeds under a
// Beta(1,1) prior, (Succeeded+1)/(Used+2): 0.5 for a tool never used. A call with
// unknown outcome counts as used but not as succeeded.
func (s ToolStat) SuccessRate() float64 {
	return float64(s.Succeeded+1) / float64(s.Used+2)
}

// MeanLatency returns the average over all calls, 0 for a tool never used.
func (s ToolStat) MeanLatency() time.Duration {
	if s.Used <= 0 {
		return 0
	}
	return time.Duration(float64(s.TotalLatencyMS) / float64(s.Used) * float64(time.Millisecond))
}
