package model

// deletes adds the commands that delete the session, and that take this back (rule 17).
func (w *world) deletes() {
	s := w.s
	switch {
	case w.cfg.Delete && s.Commands == 0:
		w.command(DeleteEntry, "user: delete stored")
	case w.cfg.Undelete && s.Commands == 1:
		w.command(UndeleteEntry, "user: undelete stored")
	}
}

func (w *world) command(kind EntryKind, what string) {
	n := *w.s
	n.Commands++
	if w.store(&n, Entry{Kind: kind}) {
		w.emit(n, what)
	}
}

// delete closes the open turn and ends the queued inputs (rule 17). Any other delete is refused.
func (t *folder) delete() effect {
	if t.Deletion != Kept {
		return queues
	}
	t.Deletion = Deleted
	for input := range t.Inputs {
		if t.Inputs[input] == Queued && !t.broken(DeleteKeepsQueue) {
			t.Inputs[input] = Ended
			t.Terminals[input]++
		}
	}
	if t.Phase != NoTurn {
		t.cut()
	}
	return changes
}

// undelete is refused once there is a tombstone: what it would bring back is gone (rule 17).
func (t *folder) undelete() effect {
	if t.Deletion == Kept || t.Deletion == Buried && !t.broken(UndeleteAfterTombstone) {
		return queues
	}
	t.Revived = t.Deletion == Buried
	t.Deletion = Kept
	return changes
}

// bury ends a deletion for good. The conversation, which a tombstone drops, is not modelled: of the
// state, nothing is left that the next commits depend on but cursor, inputs and the deletion.
func (t *folder) bury() {
	t.EarlyTomb = t.EarlyTomb || t.Deletion == Kept
	t.Deletion = Buried
}

// checkpoint lets a core that holds no delivery commit the whole state of an idle session (rule 17).
func (c *core) checkpoint() {
	last := c.s.lastCommit()
	if c.s.Left.Checkpoints == 0 || last == 0 || c.id > 0 && c.s.Cores[0].Phase == Idle {
		return
	}
	if !c.f.idle() && (!c.broken(CheckpointOpen) || c.f.Phase == NoTurn) {
		return
	}
	n := *c.s
	n.Left.Checkpoints--
	k := Core{Fence: last, Plan: Commit{Kind: Checkpoint, Of: last, Driver: c.f.Driver}}
	if c.broken(CheckpointStale) {
		for at := uint8(1); at < last; at++ {
			if c.s.Log[at-1].Kind == CommitEntry {
				k.Plan.Of = at
				c.publishing(n, k, "takes a checkpoint of an earlier state")
			}
		}
		return
	}
	c.publishing(n, k, "takes a checkpoint")
	if c.f.Deletion == Deleted || c.broken(TombstoneEarly) && c.s.Commands > 0 && c.f.Deletion == Kept {
		k.Plan.Kind = Tombstone
		c.publishing(n, k, "buries the session")
	}
}

// lookStale decides as a core does that has kept a state, of a session without commits or of any
// earlier commit, and has not read the log since. It reads causes there, and finds those that are not
// gone. Its fence must hold it off (rule 17).
func (c *core) lookStale() {
	last := c.s.lastCommit()
	if c.s.Left.Stale == 0 || c.s.purged(c.Delivery) { // the latter: see look
		return
	}
	for at := range last {
		if at > 0 && c.s.Log[at-1].Kind != CommitEntry {
			continue
		}
		then := *c.world
		then.f = c.fold(c.s, at)
		k := core{world: &then, Core: c.Core, id: c.id}
		if cause := k.nextCause(); cause != 0 {
			n := *c.s
			n.Left.Stale--
			k.Fence, k.Plan = at, causeDone(cause, c.Delivery)
			k.publishing(n, k.Core, "cause #%d, on the state of #%d", cause, at)
		}
		c.steps = then.steps
	}
}

// readable returns the state that a core folds from the log alone, which may lack messages, and false
// if it is damaged. A core knows that a commit is missing if the next one does not follow its
// predecessor. A checkpoint needs none (rule 17).
func (m *Model) readable(s *State) (f Fold, ok bool) {
	ok = true
	missing := false
	for at := uint8(1); at <= s.Len; at++ {
		c := s.Log[at-1].Commit
		switch {
		case c.Kind == NoCommit:
		case s.purged(at):
			missing = true
		case c.checkpoint():
			f, ok, missing = m.carried(s, c, at), true, false
		case missing:
			ok = false
		default:
			f, _ = m.apply(s, f, c, at)
		}
	}
	return f, ok
}

// carried returns the state that a checkpoint carries.
func (m *Model) carried(s *State, c Commit, at uint8) Fold {
	f := m.fold(s, c.Of)
	switch {
	case m.broken(CheckpointMovesCursor):
		for before := f.Cursor + 1; before < at; before++ {
			if s.isCause(before) {
				f.Cursor = before
			}
		}
	case m.broken(CheckpointDropsMarks):
		f.Begun = 0
	}
	f, _ = m.apply(s, f, c, at)
	return f
}

// retention adds the steps of the workers that delete what a checkpoint makes superfluous (rule 17).
// A worker may be stalled for any time after it has chosen a checkpoint, or die: then it takes no
// further step, or another run takes its place.
func (w *world) retention() {
	s := w.s
	for i, below := range s.Workers {
		if below > 0 && (i == 0 || below != s.Workers[i-1]) {
			w.purge(below)
		}
	}
	if s.Left.Purges == 0 {
		return
	}
	for at := uint8(1); at <= s.Len; at++ {
		c := s.Log[at-1].Commit
		idle := w.broken(PurgeUncheckpointed) && c.Kind != NoCommit && w.f.idle()
		if s.purged(at) || !c.checkpoint() && !idle {
			continue
		}
		n := *s
		n.Left.Purges--
		n.Workers[0] = at
		if !w.broken(PurgeBeforeArchive) {
			n.Archive |= w.superfluous(at) &^ n.Purged
		}
		w.emit(n, "retention: archives what is below #%d", at)
	}
}

// superfluous returns what may be deleted given the checkpoint at a position: causes up to the cursor
// that it carries, and commits below it, except tombstones.
func (w *world) superfluous(checkpoint uint8) (positions uint16) {
	s := w.s
	cursor := w.fold(s, checkpoint).Cursor
	switch {
	case w.broken(PurgeBeyondCursor):
		cursor = checkpoint
	case w.broken(PurgeToLiveCursor):
		cursor = w.f.Cursor
	case w.broken(PurgeLast):
		checkpoint++
	}
	for at := uint8(1); at <= s.Len; at++ {
		kept := at > cursor
		if !s.isCause(at) {
			kept = at >= checkpoint || s.Log[at-1].Commit.Kind == Tombstone && !w.broken(PurgeTombstone)
		}
		if !kept {
			positions |= 1 << (at - 1)
		}
	}
	return positions
}

// purge adds the deletions of a worker: causes and commits, in either order, or one by one.
func (w *world) purge(checkpoint uint8) {
	s := w.s
	may := w.superfluous(checkpoint) &^ s.Purged
	causes, commits := uint16(0), uint16(0)
	for at := uint8(1); at <= s.Len; at++ {
		bit := may & (1 << (at - 1))
		switch {
		case bit == 0:
		case w.cfg.Piecewise:
			n := *s
			n.Purged |= bit
			w.emit(n, "retention: deletes #%d, below #%d", at, checkpoint)
		case s.isCause(at):
			causes |= bit
		default:
			commits |= bit
		}
	}
	for _, part := range []struct {
		positions uint16
		what      string
	}{{causes, "retention: purges causes below #%d"}, {commits, "retention: purges commits below #%d"}} {
		if part.positions != 0 {
			n := *s
			n.Purged |= part.positions
			w.emit(n, part.what, checkpoint)
		}
	}
}
