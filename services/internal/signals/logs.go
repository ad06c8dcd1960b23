package signals

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/contrib/bridges/otelslog"

	"skandha.dev/pkg/telemetry"
)

// Logger returns a logger that writes to log and, if logs are sent, sends the same records, with the trace of the
// context that they are logged with.
func (s *Signals) Logger(log *slog.Logger, service string) *slog.Logger {
	if s == nil || s.logs == nil {
		return log
	}
	sent := otelslog.NewHandler("skandha.dev/"+service, otelslog.WithLoggerProvider(s.logs))
	return slog.New(slog.NewMultiHandler(log.Handler(), discreet{sent, log.Handler()}))
}

// discreet hides credentials, and passes on the levels that the other handler takes.
type discreet struct {
	slog.Handler
	like slog.Handler
}

func (d discreet) Enabled(ctx context.Context, l slog.Level) bool { return d.like.Enabled(ctx, l) }

func (d discreet) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, telemetry.Redact(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(plain(a))
		return true
	})
	return d.Handler.Handle(ctx, out)
}

func (d discreet) WithAttrs(attrs []slog.Attr) slog.Handler {
	safe := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		safe[i] = plain(a)
	}
	return discreet{d.Handler.WithAttrs(safe), d.like}
}

// plain hides credentials in an attribute, and makes a text of what has a type that OTLP does not know.
func plain(a slog.Attr) slog.Attr {
	if a = telemetry.RedactAttr(a); a.Value.Kind() == slog.KindAny {
		a.Value = slog.StringValue(fmt.Sprint(a.Value.Any()))
	}
	return a
}

func (d discreet) WithGroup(name string) slog.Handler {
	return discreet{d.Handler.WithGroup(name), d.like}
}
