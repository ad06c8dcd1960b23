package model

// start opens the turn of an input.
func (t *folder) start(input uint8) {
	t.PausedStart = t.PausedStart || t.Paused
	t.Turn, t.Inputs[input] = input, Current
	if input == t.caller() && t.cfg.Calls > 0 && !t.cfg.Plan {
		t.act()
	} else {
		t.Phase = Planning
	}
}

// act begins the calls, or asks a person first.
func (t *folder) act() {
	if t.cfg.Confirm {
		t.Phase, t.Confirmation, t.RequestedAt = Parked, Pending, t.at
	} else {
		t.assignAll()
	}
}

func (t *folder) assignAll() {
	for call := range t.calls() {
		t.assign(call)
	}
}

// assign gives the call a fresh attempt at the runner the commit names (rule 7).
func (t *folder) assign(call uint8) {
	t.Phase = Acting
	c := &t.Calls[call]
	if c.Attempt < t.cfg.Attempts[call] {
		c.Attempt++
	}
	c.Runner = t.commit.Runner[call]
}

func (t *folder) record(call uint8, r Result) {
	c := &t.Calls[call]
	c.Result = r
	if c.Results < 2 {
		c.Results++
	}
}

// deny ends a parked turn without its calls.
func (t *folder) deny() {
	t.Confirmation = Over
	for call := range t.calls() {
		t.record(call, Denied)
	}
	t.end()
}

// cut ends the turn early and closes its calls with the runners' answers (rule 10).
func (t *folder) cut() {
	for call := range t.calls() {
		if t.Turn != t.caller() || t.Calls[call].Result != NoResult {
			continue
		}
		if t.Phase == Parked || t.Phase == Held || t.Phase == Acting && t.cfg.Idempotent {
			t.record(call, NotRun)
		} else if t.Phase == Acting {
			t.record(call, t.commit.Closed[call])
		}
	}
	t.end()
}

// end gives the turn's input its terminal event and starts the next one.
func (t *folder) end() {
	t.Inputs[t.Turn] = Ended
	if t.Terminals[t.Turn] < 2 {
		t.Terminals[t.Turn]++
	}
	t.Phase, t.Turn, t.Joined = NoTurn, 0, 0
	if t.Confirmation == Pending {
		t.Confirmation = Over
	}
	t.next()
}

// next starts the turn of the first queued input, unless the session is paused.
func (t *folder) next() {
	if t.Paused {
		return
	}
	for input := uint8(1); input <= maxInputs; input++ {
		if t.Inputs[input] == Queued {
			t.start(input)
			return
		}
	}
}
