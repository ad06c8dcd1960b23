package model

// pauses adds the commands that pause the session, and that resume it (rule 19).
func (w *world) pauses() {
	switch s := w.s; {
	case w.cfg.Pause && s.Commands == 0:
		w.command(PauseEntry, "user: pause stored")
	case w.cfg.Pause && s.Commands == 1:
		w.command(ResumeEntry, "user: resume stored")
	}
}

// pause keeps what runs, and its driver, like a commit that only queues (rule 19).
func (t *folder) pause() effect {
	t.Paused = true
	if t.broken(PauseFrees) {
		t.commit.Driver = 0
		return changes
	}
	return queues
}

// resume starts what was held. Its delivery becomes the driver of the open turn, because the earlier
// driver may have been acked (rule 19).
func (t *folder) resume() effect {
	t.Paused = false
	switch {
	case t.Phase == NoTurn:
		t.next()
	case t.Phase == Held && t.Confirmation == Approved:
		t.assignAll()
	case t.Phase == Held:
		t.act()
	}
	if t.broken(ResumeKeepsDriver) {
		return queues
	}
	return changes
}

// actOrHold begins what follows a model's reply or an approval, or holds it until the session is
// resumed (rule 19).
func (t *folder) actOrHold(act func()) {
	if t.Paused && !t.broken(PausedActs) {
		t.Phase = Held
		return
	}
	t.PausedStart = t.PausedStart || t.Paused
	act()
}

// holdsAttempt reports whether a new attempt at a call waits until the session is resumed. One that
// only finds out what became of earlier ones does not (rule 19).
func (c *core) holdsAttempt(plan Commit) bool {
	return c.f.Paused && plan.Kind == Reassigned && plan.Result != OutcomeUnknown && !c.broken(PausedRetries)
}
