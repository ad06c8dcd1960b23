package model

// steers reports whether an input waits that is to join the open turn.
func (t *folder) steers() bool { return t.cfg.Steer && t.Inputs[2] == Queued }

// askAgain asks the model about the results of the calls. What is to steer the turn joins it in the same
// commit, and has its terminal event with that: whatever becomes of the turn, it counts once (rule 20).
func (t *folder) askAgain() {
	t.Phase = Planning
	if !t.steers() {
		return
	}
	t.Joined = 2
	if !t.broken(JoinQueued) {
		t.Inputs[2] = Ended
	}
	if !t.broken(JoinSilently) && t.Terminals[2] < 2 {
		t.Terminals[2]++
	}
	if t.broken(JoinFrees) {
		t.commit.Driver = 0
	}
}

// named reports whether a cancel of the input is one of the open turn: of the input that began it, or of
// one that has joined it.
func (f *Fold) named(input uint8) bool {
	return f.Inputs[input] == Current || f.Phase != NoTurn && f.Joined == input
}
