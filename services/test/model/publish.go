package model

// propose decides on a commit. The log as just read becomes its fence (rule 2). n holds
// everything that the core did before.
func (c *core) propose(n State, plan Commit, why string, args ...uint8) {
	plan.Driver = c.Delivery
	c.publishing(n, Core{
		Delivery: c.Delivery, Fence: c.s.lastCommit(), Plan: plan, Sent: c.Sent, Handed: c.Handed, Begun: c.Begun,
	}, why, args...)
}

// publishing lets the core k publish its plan, with every choice of runners: a call may
// be assigned to any instance that the core considers alive (rule 7). The runners are
// interchangeable at first, so the first call begins at runner 0.
func (c *core) publishing(n State, k Core, why string, args ...uint8) {
	k.Phase = Publishing
	g, _ := c.apply(&n, c.f, k.Plan, n.Len+1)
	choices := [maxCalls]uint8{1, 1}
	for call := range c.calls() {
		before := c.f.Calls[call].Attempt
		if g.Calls[call].Attempt != before && (before > 0 || call > 0) {
			choices[call] = runners
		}
	}
	for first := range choices[0] {
		for second := range choices[1] {
			k.Plan.Runner = [maxCalls]uint8{first, second}
			n.Cores[c.id] = k
			c.emitPlan(n, k.Plan, why, args...)
		}
	}
}

// asStranger returns the core's memory after it lost a race, or does not know that it
// won: it keeps the delivery, and drops its plan.
func (c *core) asStranger() Core {
	if c.Plan.checkpoint() {
		return Core{} // another core, or this one, will write one later
	}
	if c.broken(BeginAgain) {
		return Core{Phase: Looking, Delivery: c.Delivery, Sent: c.Sent, Handed: c.Handed}
	}
	return Core{Phase: Looking, Delivery: c.Delivery, Sent: c.Sent, Handed: c.Handed, Begun: c.Begun}
}

// publish stores the commit if the fence holds, else reads the log again (rules 2 and 6).
func (c *core) publish() {
	unfenced := c.broken(NoFence) || c.broken(CheckpointUnfenced) && c.Plan.checkpoint()
	if last := c.s.lastStored(); last != c.Fence && !unfenced {
		if c.s.lastCommit() > c.Fence && !c.broken(NoiseBlind) || c.broken(NoiseBlocks) {
			c.refused()
			return
		}
		// Noise alone came after the fence, and nothing was stored: the commit is sent again, after it.
		k := c.Core
		k.Fence = last
		c.emit(c.become(k), "fence refused for noise, which is read")
		return
	}
	n := *c.s
	g, changes := c.apply(c.s, c.f, c.Plan, n.Len+1)
	if !changes { // only without fences
		c.emit(c.become(Core{Phase: Looking, Delivery: c.Delivery}), "the commit would change nothing")
		return
	}
	if !c.store(&n, Entry{Kind: CommitEntry, Commit: c.Plan}) {
		return
	}
	for call := range c.calls() {
		before := c.f.Calls[call]
		if g.Calls[call].Result == OutcomeUnknown && before.Result != OutcomeUnknown {
			n.NeedlessUnknown = n.NeedlessUnknown || c.runnerKnew(call, before)
		}
	}
	c.stored(n, g)
}

// refused continues after a lost fence: fold again, decide again (rule 6).
func (c *core) refused() {
	k := c.asStranger()
	if c.broken(StaleReply) {
		again := c.Plan.processesCause() && c.Plan.Cause <= c.f.Cursor
		if _, changes := c.apply(c.s, c.f, c.Plan, c.s.Len+1); changes && !again {
			k = c.Core // the reply in hand counts for any attempt
			k.Fence = c.s.lastCommit()
		}
	}
	c.emit(c.become(k), "fence refused, reads the log again")
}

// stored continues after the commit is in the log as the last entry of n, with fold g.
// Only a clean PubAck allows the core to dispatch what the commit assigns (rule 7). After
// a cause, the core forgets what it may repeat, and asks like any other core.
func (c *core) stored(n State, g Fold) {
	if c.Plan.checkpoint() {
		n.Cores[c.id] = Core{}
		c.emitPlan(n, c.Plan, "commit stored at #%d", n.Len)
		return
	}
	stranger := Core{Phase: Looking, Delivery: c.Delivery}
	if c.broken(NoDriver) {
		if c.Plan.processesCause() {
			stranger.Handed = c.f.Phase != NoTurn && c.f.Driver != c.Delivery
		} else {
			stranger.Handed = c.Handed
		}
	}
	winner := stranger
	assigned := false
	for call := range c.calls() {
		a := g.Calls[call].Attempt
		switch {
		case a != c.f.Calls[call].Attempt:
			n.Attempts[call][a].Runner = g.Calls[call].Runner + 1
			n.Attempts[call][a].Probe = g.Calls[call].Probed
			winner.ToSend[call] = a
			assigned = true
		case g.open(call) && !c.Plan.processesCause() && c.Plan.Call != call: // it was about the other call
			winner.ToSend[call] = c.ToSend[call]
			winner.Sent[call], stranger.Sent[call] = c.Sent[call], c.Sent[call]
		}
	}
	winner.Fence = n.Len
	winner.Begun = c.Plan.Kind == Begun
	n.Cores[c.id] = winner.settled()
	c.emitPlan(n, c.Plan, "commit stored at #%d", n.Len)
	if assigned && n.Left.NetFaults > 0 {
		n.Left.NetFaults--
		n.Cores[c.id] = stranger
		c.emitPlan(n, c.Plan, "commit stored at #%d, its PubAck lost and buried", n.Len)
	}
}

// settled sets the next phase of a core whose commit is stored.
func (k Core) settled() Core {
	if k.ToSend != [maxCalls]uint8{} {
		k.Phase = Dispatching
	} else {
		k.Phase, k.Fence = Looking, 0
	}
	return k
}

// runnerKnew reports whether a runner that was always reachable could have reported
// more than outcome_unknown.
func (c *core) runnerKnew(i uint8, call Call) bool {
	if call.Probed {
		return false // the earlier attempt's runner did not
	}
	switch *c.s.atRunner(call.Runner, i, call.Attempt) {
	case NotSeen, Finished, Tombstoned:
		return !c.s.Runners[call.Runner].WasUnreachable
	}
	return false
}

// dispatch sends the attempts that only this core may send (rule 7).
func (c *core) dispatch() {
	for call := range c.calls() {
		a := c.ToSend[call]
		if a == 0 {
			continue
		}
		k := c.Core
		k.ToSend[call] = 0
		if r := c.s.Attempts[call][a].Runner - 1; c.s.reachable(r) {
			c.send(k, call, a)
		} else {
			c.noResponders(k, call, a)
		}
	}
}

func (c *core) send(k Core, call, a uint8) {
	if c.s.Left.NetFaults > 0 {
		n := c.become(k.settled())
		n.Left.NetFaults--
		c.emit(n, "dispatch of call %d, attempt %d lost", call, a)
	}
	k.Sent[call] = a
	n := c.become(k.settled())
	n.Attempts[call][a].InFlight = true
	c.emit(n, "dispatches call %d, attempt %d", call, a)
}

// noResponders handles a 503. On the first and only dispatch, by the only core that may
// dispatch it, a 503 proves that the attempt never ran (rule 9). A timeout proves nothing.
func (c *core) noResponders(k Core, call, a uint8) {
	c.emit(c.become(k.settled()), "dispatch of call %d, attempt %d is not answered", call, a)
	k.Phase, k.Plan = Publishing, c.retry(call, a, NotRun)
	if c.holdsAttempt(k.Plan) {
		return
	}
	k.Plan.Driver = c.Delivery
	for r := range uint8(runners) {
		k.Plan.Runner[call] = r
		c.emitPlan(c.become(k), k.Plan, "only dispatch of call %d, attempt %d: no responders, it never ran", call, a)
	}
}
