package session

import (
	"context"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/internal/turn"
)

// traceOf returns the context in which a cause is decided. If turns have traces, that of the turn which the cause begins
// or is about; else that of its message.
func (s *session) traceOf(kind subject.CauseKind, m bus.StoredMsg) context.Context {
	switch {
	case s.Traces == nil:
		return telemetry.Extract(s.set.ctx, m.Header)
	case kind == subject.Input || kind == subject.Command || s.state == nil || s.state.Turn == nil:
		return s.Traces.Begin(s.set.ctx, s.ref, m.Seq, m.Header)
	}
	return s.within("")
}

// within returns the context of a step of the open turn.
func (s *session) within(step string) context.Context {
	if s.Traces == nil || s.state == nil || s.state.Turn == nil {
		return s.ctx
	}
	return s.Traces.Within(s.set.ctx, s.ref, turn.SequenceOf(s.state.Turn.ID), step)
}
