package decide

import "skandha.dev/pkg/event"

// leaves reports whether an event, before it is folded, is to be delivered to where the input that
// it is about came from.
func (b *builder) leaves(p event.Payload) bool {
	switch p := p.(type) {
	case event.ToolCallRequest: // a stranger must neither see the arguments nor be asked
		return b.s.Turn != nil && b.s.Turn.ReplyTo != "" && b.stranger() == ""
	case event.Recorded:
		return p.Joined == "" && b.wantsReply(p.Sequence)
	case event.SessionReset:
		return len(p.Stops) > 0
	case event.SessionLocked:
		return len(p.Stops) > 0
	case event.TurnFailed:
		return len(p.Stops) > 0 || p.Code.Delivered() && b.wantsReply(p.Sequence)
	}
	return false
}

// wantsReply reports whether the input with the sequence says where its answer is to be delivered.
func (b *builder) wantsReply(seq uint64) bool {
	if t := b.s.Turn; t != nil && t.Sequence == seq {
		return t.ReplyTo != ""
	}
	if i := b.s.queued(seq); i >= 0 {
		return b.s.Queue[i].ReplyTo != ""
	}
	return b.replyTo != "" && seq == b.head.Trigger.Sequence
}
