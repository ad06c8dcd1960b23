package model

// drive advances the open turn by one step. Only the holder of the delivery `driver`
// may do this (rule 3).
func (c *core) drive() {
	switch c.f.Phase {
	case Parked:
		// Rule 12: commit, schedule the timer, wait for its PubAck, ack.
		if c.s.TimerSet {
			c.ackDelivery("parked and the timer is stored: acks")
			return
		}
		n := *c.s
		n.TimerSet = true
		c.emit(n, "timer stored")
	case Planning:
		// Rule 11: model calls are idempotent, so only the reply matters.
		c.propose(*c.s, Commit{Kind: ModelReply}, "the model replied")
	case Acting:
		for call := range c.calls() {
			if c.f.open(call) {
				c.driveCall(call)
			}
		}
	}
}

// driveCall asks the call's runner for its state, and decides on the answer (rule 9).
func (c *core) driveCall(call uint8) {
	a, r := c.f.Calls[call].Attempt, c.f.Calls[call].Runner
	known := c.s.Attempts[call][a]
	if c.broken(RefuseWithoutTombstone) && known.Refused {
		c.tryAgain(*c.s, call, NotRun, "call %d: attempt %d was refused", call, a)
		return
	}
	if !c.s.reachable(r) {
		switch {
		case c.cfg.Idempotent || c.f.Calls[call].Probed:
			c.tryAgain(*c.s, call, OutcomeUnknown, "call %d: runner%d is unreachable, idempotent", call, r)
		case c.broken(NoRespondersNever):
			c.tryAgain(*c.s, call, NotRun, "call %d: runner%d is unreachable", call, r)
		case known.StartBy == PassedAtCore || c.broken(InstantUnknown):
			c.unknown(call, "call %d: runner%d is unreachable", call, r)
		}
		return
	}
	switch *c.s.atRunner(r, call, a) {
	case NotSeen:
		c.askAboutUnseen(call, a, r)
	case Finished:
		c.conclude(call, Succeeded, "call %d: result of attempt %d", call, a)
	case Tombstoned:
		c.tryAgain(*c.s, call, NotRun, "call %d: attempt %d will never run", call, a)
	case Dropped, Stopped:
		c.unknown(call, "call %d: attempt %d ran, its result is lost", call, a)
	case FoundNot:
		c.conclude(call, NotRun, "call %d: probe %d found that it did not run", call, a)
	case FoundNone:
		c.conclude(call, OutcomeUnknown, "call %d: probe %d found nothing", call, a)
	}
}

// unknown proposes to find out what became of a call, or the result if that is impossible.
func (c *core) unknown(call uint8, why string, args ...uint8) {
	if k := c.f.Calls[call]; c.cfg.Probe && !k.Probed && k.Attempt < c.cfg.Attempts[call] {
		c.propose(*c.s, Commit{Kind: Reassigned, Call: call, Result: OutcomeUnknown}, why, args...)
		return
	}
	c.conclude(call, OutcomeUnknown, why, args...)
}

// askAboutUnseen handles an attempt that the runner has not seen. The core that may
// dispatch it dispatches again; any other core asks, and the answer `never` leaves a
// tombstone (rules 7 and 8).
func (c *core) askAboutUnseen(call, a, r uint8) {
	if c.Sent[call] == a || c.broken(TakeoverDispatches) {
		if c.s.Attempts[call][a].InFlight {
			return
		}
		k := c.Core
		k.Sent[call] = a
		n := c.become(k)
		n.Attempts[call][a].InFlight = true
		c.emit(n, "dispatches call %d, attempt %d again", call, a)
		return
	}
	n := *c.s
	if !c.broken(NoTombstone) {
		*n.atRunner(r, call, a) = Tombstoned
	}
	c.tryAgain(n, call, NotRun, "asks runner%d about call %d, attempt %d: never", r, call, a)
	c.emit(n, "asks runner%d about call %d, attempt %d, the answer is lost", r, call, a)
}

// conclude proposes a result.
func (c *core) conclude(call uint8, r Result, why string, args ...uint8) {
	c.propose(*c.s, Commit{Kind: CallResult, Call: call, Result: r}, why, args...)
}

// tryAgain proposes a new attempt or, at the limit, the result otherwise.
func (c *core) tryAgain(n State, call uint8, otherwise Result, why string, args ...uint8) {
	if plan := c.retry(call, c.f.Calls[call].Attempt, otherwise); !c.holdsAttempt(plan) {
		c.propose(n, plan, why, args...)
	}
}

// retry returns the commit for a call whose attempt failed to run.
func (c *core) retry(call, attempt uint8, otherwise Result) Commit {
	if c.f.Calls[call].Probed {
		otherwise = OutcomeUnknown
		if attempt < c.cfg.Attempts[call] {
			return Commit{Kind: Reassigned, Call: call, Result: OutcomeUnknown}
		}
	}
	if attempt < c.cfg.Attempts[call] {
		return Commit{Kind: Reassigned, Call: call}
	}
	return Commit{Kind: CallResult, Call: call, Result: otherwise}
}

// closesCalls reports whether the cause ends the running turn while a call that is not
// idempotent is open (rule 10).
func (c *core) closesCalls(e Entry) bool {
	ends := e.Kind == CancelEntry && (e.Input == c.f.Turn || c.broken(NoPosition)) ||
		e.Kind == InputEntry && e.Interrupt && !c.f.Paused || e.Kind == DeleteEntry
	if !ends || c.cfg.Idempotent {
		return false
	}
	for call := range c.calls() {
		if c.f.open(call) {
			return true
		}
	}
	return false
}

// closeWith begins to close the open calls for a cause. The core asks each runner to
// stop, then commits under the fence from before the first question (rule 10).
func (c *core) closeWith(cause uint8) {
	c.Fence, c.Plan = c.s.lastCommit(), causeDone(cause, c.Delivery)
	for call := range c.calls() {
		if c.f.open(call) && (call == 0 || !c.broken(CloseFirstOnly)) {
			c.Plan.Closed[call] = NoResult
		}
	}
	for call := range c.calls() {
		if c.Plan.Closed[call] == NoResult {
			c.askToStop(call, c.f.Calls[call])
		}
	}
}

// closeOn asks the remaining runners, with the core's knowledge at its fence; or it finds
// that the log has grown, which a waiting core watches for (rule 3).
func (c *core) closeOn() {
	if c.s.lastCommit() != c.Fence {
		c.emit(c.become(c.asStranger()), "the log has grown: reads it again")
	}
	then := c.fold(c.s, c.Fence)
	for call := range c.calls() {
		if c.Plan.Closed[call] == NoResult {
			c.askToStop(call, then.Calls[call])
		}
	}
}

// askToStop asks the runner of one call to stop. The answer is atomic with the runner's
// table, so it remains true.
func (c *core) askToStop(i uint8, call Call) {
	a, r := call.Attempt, call.Runner
	if !c.s.reachable(r) { // as in rule 9
		switch {
		case c.s.Attempts[i][a].StartBy == PassedAtCore || c.broken(InstantUnknown):
			c.closed(*c.s, i, OutcomeUnknown, "call %d: runner%d is unreachable", i, r)
		case call.Probed:
			c.closed(*c.s, i, OutcomeUnknown, "call %d: runner%d, which probes, is unreachable", i, r)
		case c.broken(NoRespondersNever):
			c.closed(*c.s, i, NotRun, "call %d: runner%d is unreachable", i, r)
		}
		return
	}
	n := *c.s
	entry := n.atRunner(r, i, a)
	answer := OutcomeUnknown
	switch *entry {
	case NotSeen:
		answer = NotRun
		if !c.broken(NoTombstone) {
			*entry = Tombstoned
		}
	case Running, Waiting, Marked:
		*entry = Stopped
	case Finished:
		answer = Succeeded
	case Tombstoned, FoundNot:
		answer = NotRun
	}
	if call.Probed && answer == NotRun && *entry != FoundNot {
		answer = OutcomeUnknown
	}
	c.closed(n, i, answer, "stops call %d, attempt %d", i, a)
	if n != *c.s {
		c.emit(n, "stops call %d, attempt %d, the answer is lost", i, a)
	}
}

// closed records the answer for one call. After the last one, the commit is ready.
func (c *core) closed(n State, call uint8, r Result, why string, args ...uint8) {
	k := Core{Phase: Closing, Delivery: c.Delivery, Fence: c.Fence, Plan: c.Plan, Sent: c.Sent, Handed: c.Handed}
	k.Plan.Closed[call] = r
	if k.Plan.Closed[0] != NoResult && k.Plan.Closed[1] != NoResult {
		c.publishing(n, k, why, args...)
		return
	}
	n.Cores[c.id] = k
	c.emitPlan(n, k.Plan, why, args...)
}
