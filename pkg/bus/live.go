package bus

// The headers of live events: their position in the log (rule 16), so that clients that
// follow a session detect a gap and fill it from the log.
const (
	HeaderCommit = "Skandha-Commit" // stream sequence of the commit
	HeaderIndex  = "Skandha-Index"  // index of the event in it, from 0
	HeaderEvents = "Skandha-Events" // how many events the commit has
	HeaderPrev   = "Skandha-Prev"   // stream sequence of the session's previous commit
)
