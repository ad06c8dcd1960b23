package bus

// Headers of live events: where in the log they stand (rule 16), so that
// whoever follows sees a gap and fills it from the log.
const (
	HeaderCommit = "Skandha-Commit" // stream sequence of the commit
	HeaderIndex  = "Skandha-Index"  // index of the event in it, from 0
	HeaderEvents = "Skandha-Events" // how many events the commit has
	HeaderPrev   = "Skandha-Prev"   // stream sequence of the session's commit before
)
