package model

// runner adds the steps and faults of executor instance r (rule 8).
func (w *world) runner(r uint8) {
	s := w.s
	if s.Left.RunnerCrashes > 0 {
		n := *s
		n.Left.RunnerCrashes--
		n.Runners[r] = Runner{Dead: true, WasUnreachable: true}
		w.emit(n, "crash: runner%d, permanently", r)
	}
	if s.Runners[r].Unreachable {
		n := *s
		n.Runners[r].Unreachable = false
		w.emit(n, "runner%d: reachable again", r)
	} else if s.Left.Partitions > 0 {
		n := *s
		n.Left.Partitions--
		n.Runners[r].Unreachable, n.Runners[r].WasUnreachable = true, true
		w.emit(n, "fault: runner%d is unreachable", r)
	}
	for call := range w.calls() {
		for a := uint8(1); a <= maxAttempts; a++ {
			if s.Attempts[call][a].Runner == r+1 {
				w.attempt(r, call, a)
			}
		}
	}
}

// attempt adds the steps of runner r for one attempt at a call.
func (w *world) attempt(r, call, a uint8) {
	s := w.s
	if s.Attempts[call][a].InFlight && !s.Runners[r].Unreachable {
		n := *s
		n.Attempts[call][a].InFlight = false
		w.arrive(n, r, call, a)
		if s.Left.Duplicates > 0 { // a duplicate stays in flight
			n := *s
			n.Left.Duplicates--
			w.arrive(n, r, call, a)
		}
	}
	switch state := *s.atRunner(r, call, a); {
	case state == Running:
		n := *s
		*n.atRunner(r, call, a) = Finished
		w.emit(n, "runner%d: call %d, attempt %d finished", r, call, a)
	case state == Waiting && s.Marks[call] == Closed:
		n := *s
		*n.atRunner(r, call, a) = Tombstoned
		w.emit(n, "runner%d: call %d was closed, attempt %d does not begin", r, call, a)
	case state == Waiting:
		n := *s
		n.Marks[call] = Begins
		*n.atRunner(r, call, a) = Marked
		w.emit(n, "runner%d: records that call %d begins, attempt %d", r, call, a)
	case state == Marked:
		n := *s
		w.effect(&n, r, call, a)
	case state == Finished && w.mayDrop(call, a):
		n := *s
		*n.atRunner(r, call, a) = Dropped
		if w.broken(ForgetAttempts) {
			*n.atRunner(r, call, a) = NotSeen
		}
		w.emit(n, "runner%d: drops the result of call %d, attempt %d", r, call, a)
	}
}

// mayDrop reports whether a runner may drop a result: once core has reported that it is
// committed, or not_after and the skew have passed (rule 8).
func (w *world) mayDrop(call, a uint8) bool {
	return w.f.Calls[call].Result != NoResult || w.s.Attempts[call][a].StartBy == PassedAtCore
}

// arrive adds the arrival of a dispatch at runner r. Start, tombstone and refusal go
// through one table keyed by call and attempt; n is the state without the message.
func (w *world) arrive(n State, r, call, a uint8) {
	entry := n.atRunner(r, call, a)
	if *entry != NotSeen {
		w.emit(n, "runner%d: repeated dispatch of call %d, attempt %d, attaches", r, call, a)
		return
	}
	if n.Attempts[call][a].StartBy != InTime {
		*entry = Tombstoned
		w.emit(n, "runner%d: refuses call %d, attempt %d, past start_by", r, call, a)
		return
	}
	if n.Left.NetFaults > 0 {
		busy := n
		busy.Left.NetFaults--
		if w.broken(RefuseWithoutTombstone) {
			busy.Attempts[call][a].Refused = true
		} else {
			*busy.atRunner(r, call, a) = Tombstoned
		}
		w.emit(busy, "runner%d: busy, refuses call %d, attempt %d", r, call, a)
	}
	switch {
	case n.Attempts[call][a].Probe:
		w.probe(n, r, call, a)
	case w.cfg.Probe:
		*entry = Waiting
		w.emit(n, "runner%d: starts call %d, attempt %d", r, call, a)
	default:
		w.effect(&n, r, call, a)
	}
}

// probe adds what runner r finds out about the earlier attempts at a call. It closes a call that
// has not begun, in one step with finding that out.
func (w *world) probe(n State, r, call, a uint8) {
	entry := n.atRunner(r, call, a)
	if n.Marks[call] != Begins {
		*entry = FoundNot
		if !w.broken(ProbeWithoutFence) {
			n.Marks[call] = Closed
		}
		w.emit(n, "runner%d: probe %d closes call %d", r, a, call)
		return
	}
	if n.Effects[call] > 0 {
		found := n
		*found.atRunner(r, call, a) = Finished
		w.emit(found, "runner%d: probe %d finds the effect of call %d", r, a, call)
	}
	*entry = FoundNone
	w.emit(n, "runner%d: probe %d finds out nothing about call %d", r, a, call)
}

// effect is the effect of a call.
func (w *world) effect(s *State, r, call, a uint8) {
	n := *s
	entry := n.atRunner(r, call, a)
	if n.Effects[call] < 3 {
		n.Effects[call]++
	}
	late := w.f.Calls[call].Result != NoResult && !w.cfg.Idempotent && n.Marks[call] == NoMark
	n.LateEffect = n.LateEffect || late
	*entry = Running
	w.emit(n, "runner%d: EFFECT of call %d, attempt %d (number %d)", r, call, a, n.Effects[call])
}
