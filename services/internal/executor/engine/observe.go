package engine

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/signals"
)

// watch makes the spans and metrics of work, if the process sends any.
type watch struct {
	kind     subject.ExecutorKind
	service  string
	tracer   trace.Tracer
	duration metric.Float64Histogram
	tokens   metric.Int64Histogram
	cost     metric.Float64Counter
	unpriced metric.Int64Counter
}

// The buckets that the conventions advise.
var (
	seconds = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	tokens  = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
)

func newWatch(kind subject.ExecutorKind, service string) watch {
	scope := "skandha.dev/services/" + service
	meter := otel.Meter(scope)
	w := watch{kind: kind, service: service, tracer: otel.Tracer(scope)}
	// They fail only for names that are none.
	w.duration, _ = meter.Float64Histogram(signals.GenAIDuration, metric.WithUnit("s"),
		metric.WithDescription("Model and tool calls."), metric.WithExplicitBucketBoundaries(seconds...))
	w.tokens, _ = meter.Int64Histogram(signals.GenAITokens, metric.WithUnit("{token}"),
		metric.WithDescription("Tokens of model calls."), metric.WithExplicitBucketBoundaries(tokens...))
	w.cost, _ = meter.Float64Counter(signals.Cost, metric.WithUnit("{USD}"),
		metric.WithDescription("What the answers of models cost, in US dollars, as the log records it."))
	w.unpriced, _ = meter.Int64Counter(signals.Unpriced, metric.WithUnit("{answer}"),
		metric.WithDescription("Answers of models whose cost is unknown."))
	return w
}

// observed begins the span of work; end takes its answer.
func (t *Attempts) observed(ctx context.Context, req executor.Request) (_ context.Context, end func(executor.Answer)) {
	began, w := time.Now(), t.watch
	if req.Provider == "" {
		req.Provider = t.first()
	}
	name, kind, about := w.about(req)
	ctx, span := w.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithTimestamp(began), trace.WithAttributes(about...),
		trace.WithAttributes(signals.Agent.String(string(req.Agent)), signals.GenAIConversation.String(string(req.Session)),
			signals.Attempt.String(req.Attempt), signals.Service.String(w.service)))
	return ctx, func(a executor.Answer) {
		about := append(about, w.outcome(span, a)...)
		w.duration.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(about...))
		w.count(ctx, a, about)
		w.spend(ctx, a, append(about, signals.GenAIAgent.String(string(req.Agent))))
		span.End()
	}
}

// first returns the name of the provider that a request gets which names none.
func (t *Attempts) first() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.preferred
}

// about returns the span's name and kind, and what it has in common with the metrics.
func (w watch) about(req executor.Request) (name string, kind trace.SpanKind, about []attribute.KeyValue) {
	if w.kind == subject.Provider {
		about = []attribute.KeyValue{signals.GenAIOperation.String(signals.OperationChat), signals.GenAIProvider.String(req.Provider)}
		name = signals.OperationChat
		if req.Model != nil && req.Model.Model != "" {
			name += " " + req.Model.Model
			about = append(about, signals.GenAIRequestModel.String(req.Model.Model))
		}
		return name, trace.SpanKindClient, about
	}
	tool := ""
	if req.Tool != nil {
		tool = req.Tool.Name
	}
	return signals.OperationTool + " " + tool, trace.SpanKindInternal, []attribute.KeyValue{
		signals.GenAIOperation.String(signals.OperationTool), signals.GenAIToolName.String(tool),
	}
}

// outcome gives the span what the answer says, and returns what metrics have of it.
func (w watch) outcome(span trace.Span, a executor.Answer) (more []attribute.KeyValue) {
	code, message := "", ""
	switch {
	case a.State == executor.Refused:
		code, message = string(a.Reason), a.Message
	case a.Error != nil:
		code, message = string(a.Error.Code), a.Error.Message
	case a.Result != nil && !a.Result.Success:
		if code = "failed"; a.Result.Error != nil {
			code, message = string(a.Result.Error.Code), a.Result.Error.Message
		}
	}
	if code != "" {
		span.SetStatus(codes.Error, signals.Said(message, code))
		more = append(more, signals.ErrorType.String(code))
		span.SetAttributes(more...)
	}
	if r := a.Response; r != nil {
		span.SetName(signals.OperationChat + " " + r.Model) // the request may leave it to the provider
		span.SetAttributes(signals.GenAIModel.String(r.Model), signals.GenAIInputTokens.Int64(r.Usage.InputTokens),
			signals.GenAIOutputTokens.Int64(r.Usage.OutputTokens))
		more = append(more, signals.GenAIModel.String(r.Model))
	}
	return more
}

// usage returns what an answer, or one that was not usable, has used.
func usage(a executor.Answer) provider.Usage {
	if a.Response != nil {
		return a.Response.Usage
	}
	return a.Spent
}

// spend counts what an answer cost.
func (w watch) spend(ctx context.Context, a executor.Answer, about []attribute.KeyValue) {
	u := usage(a)
	if u.CostMicroUSD > 0 {
		w.cost.Add(ctx, float64(u.CostMicroUSD)/1e6, metric.WithAttributes(about...))
	}
	if u.Unpriced > 0 {
		w.unpriced.Add(ctx, u.Unpriced, metric.WithAttributes(about...))
	}
}

// count counts the tokens of an answer.
func (w watch) count(ctx context.Context, a executor.Answer, about []attribute.KeyValue) {
	u := usage(a)
	for kind, n := range map[string]int64{"input": u.InputTokens, "output": u.OutputTokens} {
		if n > 0 {
			w.tokens.Record(ctx, n, metric.WithAttributes(append(about, signals.GenAITokenType.String(kind))...))
		}
	}
}
