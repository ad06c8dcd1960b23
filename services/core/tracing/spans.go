package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/internal/signals"
	"skandha.dev/services/internal/timeline"
)

// scope names who makes the spans.
const scope = "skandha.dev/services/core"

// emit makes the spans of a turn: its own, and those of its timeline below it.
func (r *Recorder) emit(ctx context.Context, j job, line timeline.Timeline) {
	top := r.rootOf(ctx, j.ref, j.seq)
	r.measure(trace.ContextWithSpanContext(ctx, top.self), line)
	if !top.self.IsSampled() {
		return
	}
	from := trace.ContextWithRemoteSpanContext(context.Background(), top.sender)
	end := line.Started.Add(time.Duration(line.DurationMS) * time.Millisecond)
	for _, s := range line.Spans {
		if at := endOf(line, s); at.After(end) {
			end = at
		}
	}
	_, span := r.tracer.Start(signals.As(from, top.self.TraceID(), top.self.SpanID()), signals.OperationAgent+" "+string(line.Agent),
		trace.WithTimestamp(line.Started), trace.WithAttributes(r.about(line)...))
	if failed(line.Outcome) {
		span.SetStatus(codes.Error, signals.Said(line.Reason, line.Outcome))
		span.SetAttributes(signals.ErrorType.String(line.Outcome))
	}
	span.End(trace.WithTimestamp(end))
	for _, s := range line.Spans {
		if s.Kind != timeline.KindEnd { // the turn's span says how it ended
			r.span(ctx, j, top.self, line, s)
		}
	}
}

func (r *Recorder) about(line timeline.Timeline) []attribute.KeyValue {
	out := []attribute.KeyValue{
		signals.GenAIOperation.String(signals.OperationAgent), signals.GenAIAgent.String(string(line.Agent)),
		signals.GenAIConversation.String(string(line.Session)), signals.Turn.String(line.Turn),
		signals.Writer.String(string(line.Writer)), signals.Outcome.String(line.Outcome),
	}
	if signals.Content() {
		out = append(out, signals.Text.String(line.Text))
	}
	return out
}

func failed(outcome string) bool {
	return outcome != timeline.OutcomeAnswered && outcome != timeline.OutcomeCommand
}

func startOf(line timeline.Timeline, s timeline.Span) time.Time {
	return line.Started.Add(time.Duration(s.StartUS) * time.Microsecond)
}

func endOf(line timeline.Timeline, s timeline.Span) time.Time {
	return startOf(line, s).Add(time.Duration(s.DurationUS) * time.Microsecond)
}

// span makes one span of the timeline.
func (r *Recorder) span(ctx context.Context, j job, root trace.SpanContext, line timeline.Timeline, s timeline.Span) {
	above := root
	if s.Parent != "" {
		above = root.WithSpanID(spanOf(j.ref, j.seq, s.Parent))
	}
	options := []trace.SpanStartOption{
		trace.WithTimestamp(startOf(line, s)), trace.WithAttributes(attributes(s)...),
	}
	if s.Kind == timeline.KindConfirm {
		options = append(options, r.answered(ctx, j, s)...)
	}
	under := trace.ContextWithSpanContext(context.Background(), above.WithRemote(false))
	_, span := r.tracer.Start(signals.As(under, root.TraceID(), spanOf(j.ref, j.seq, s.ID)), name(s), options...)
	if s.Status == timeline.StatusFailed {
		span.SetStatus(codes.Error, signals.Said(s.Detail.Error, s.Detail.Code))
		if s.Detail.Code != "" {
			span.SetAttributes(signals.ErrorType.String(s.Detail.Code))
		}
	}
	span.End(trace.WithTimestamp(endOf(line, s)))
}

// answered links the wait for a person to the message by which they answered.
func (r *Recorder) answered(ctx context.Context, j job, s timeline.Span) (links []trace.SpanStartOption) {
	for _, c := range j.commits {
		if t := c.Header.Trigger; c.Sequence == s.Detail.Ended && t.Kind == event.ByCause && t.Cause == subject.Confirmation {
			m, err := r.bus.Message(ctx, t.Sequence)
			by := trace.SpanContextFromContext(telemetry.Extract(context.Background(), m.Header))
			if err == nil && by.IsValid() {
				links = append(links, trace.WithLinks(trace.Link{SpanContext: by}))
			}
		}
	}
	return links
}

// name is short and has no ids, so that spans of one kind have one name.
func name(s timeline.Span) string {
	switch s.Kind {
	case timeline.KindStep:
		return "call " + s.Detail.Tool
	case timeline.KindHook:
		return "hook " + string(s.Detail.Point) + " " + string(s.Detail.Plugin)
	case timeline.KindPolicy:
		return "policy " + string(s.Detail.Effect)
	case timeline.KindConfirm:
		return "confirm " + s.Detail.Tool
	}
	return string(s.Kind)
}

func attributes(s timeline.Span) []attribute.KeyValue {
	d := s.Detail
	out := []attribute.KeyValue{signals.Kind.String(string(s.Kind)), signals.Status.String(string(s.Status))}
	for key, value := range map[attribute.Key]string{
		signals.Call: d.Call, signals.GenAIToolName: d.Tool, signals.Attempt: d.Attempt, signals.Point: string(d.Point),
		signals.Plugin: string(d.Plugin), signals.Verb: string(d.Verb), signals.Rule: d.Rule, signals.Effect: string(d.Effect),
		signals.Person: string(d.ApprovedBy), signals.GenAIModel: d.Model,
	} {
		if value != "" {
			out = append(out, key.String(value))
		}
	}
	if d.Round > 0 {
		out = append(out, signals.Round.Int(d.Round))
	}
	if signals.Content() {
		for key, value := range map[attribute.Key]string{
			signals.GenAIToolArgs: string(d.Args), signals.GenAIToolResult: string(d.Result), signals.Text: d.Text, signals.Reason: d.Reason,
		} {
			if value != "" {
				out = append(out, key.String(value))
			}
		}
	}
	return out
}
