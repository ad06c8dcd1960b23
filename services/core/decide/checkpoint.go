package decide

import "skandha.dev/pkg/event"

// RetentionReason is the reason of checkpoints below which the log is trimmed.
const RetentionReason = "retention"

// OnRetention returns a checkpoint with the session's state, so that earlier commits can leave the log (rule 17).
// Of a session that was deleted long enough ago, it keeps only that. Otherwise it changes nothing.
//
// It is nil while the session does or awaits anything, can still be undeleted, or its log is damaged: whatever
// recovers it then may need the earlier commits.
func OnRetention(s *State, env *Env) *Decision {
	if s.Rev == 0 || s.Turn != nil || len(s.Queue) > 0 || s.Begun != nil || s.Damage != nil {
		return nil
	}
	state, reason := s, RetentionReason
	if d := s.Deleted; d != nil {
		if d.Gone || env.Now.Before(d.Until) {
			return nil
		}
		state, reason = s.tombstone(), DeletedReason
	}
	b := start(s, 0, event.Trigger{Kind: event.ByRetention}, s.Now, env) // nobody was active
	b.quiet = true
	b.emit(event.Checkpoint{State: encode(state), Reason: reason})
	return b.done()
}
