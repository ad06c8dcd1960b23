package decide

import "skandha.dev/pkg/event"

// RetentionReason is the reason of checkpoints below which the log is trimmed.
const RetentionReason = "retention"

// OnRetention returns a checkpoint with the session's state, so that earlier commits can leave the log (rule 17).
// It changes nothing else. It is nil while the session does or awaits anything, or its log is damaged: whatever
// recovers it then may need the earlier commits.
func OnRetention(s *State, env *Env) *Decision {
	if s.Rev == 0 || s.Turn != nil || len(s.Queue) > 0 || s.Begun != nil || s.Damage != nil {
		return nil
	}
	b := start(s, 0, event.Trigger{Kind: event.ByRetention}, env.Now, env)
	b.quiet = true
	b.emit(event.Checkpoint{State: encode(s), Reason: RetentionReason})
	return b.done()
}
