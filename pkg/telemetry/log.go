package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// LogConfig is how a process logs. The zero value means text at level info.
type LogConfig struct {
	Level  string // debug, info, warn or error; default info
	Format string // text (for people) or json; default text
}

// Validate reports an unknown level or format; the error names the field.
func (c LogConfig) Validate() error {
	_, levelErr := c.level()
	var formatErr error
	if c.Format != "" && c.Format != "text" && c.Format != "json" {
		formatErr = fmt.Errorf("log.format is %q, want text or json", c.Format)
	}
	return errors.Join(levelErr, formatErr)
}

func (c LogConfig) level() (slog.Level, error) {
	switch strings.ToLower(c.Level) {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("log.level is %q, want debug, info, warn or error", c.Level)
}

// NewLogger returns a logger that writes to w. Unless service is empty, every record carries
// it as an attribute. Records that are logged with a context that has a trace carry trace_id
// and span_id, as OpenTelemetry calls them in logs that are not OTLP.
func NewLogger(w io.Writer, service string, c LogConfig) (*slog.Logger, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	level, err := c.level()
	if err != nil {
		return nil, err
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: redactAttr}
	var h slog.Handler = slog.NewTextHandler(w, opts)
	if c.Format == "json" {
		h = slog.NewJSONHandler(w, opts)
	}
	l := slog.New(traced{h})
	if service != "" {
		l = l.With("service", service)
	}
	return l, nil
}

// traced adds the trace of the context to records.
type traced struct{ slog.Handler }

func (t traced) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r = r.Clone() // other handlers may have the record, too
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()))
		if !Begun(sc) { // else no such span exists
			r.AddAttrs(slog.String("span_id", sc.SpanID().String()))
		}
	}
	return t.Handler.Handle(ctx, r)
}

func (t traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{t.Handler.WithAttrs(attrs)} }

func (t traced) WithGroup(name string) slog.Handler { return traced{t.Handler.WithGroup(name)} }

var (
	// credentials matches a token, or a user and a password, in a URL. A NATS token may contain
	// an unencoded slash.
	credentials = regexp.MustCompile(`((?:nats|tls|rediss?)://)[^\s"',]*@|(://)[^\s"',/]*@`)
	// proxy matches what package net/http says of a proxy whose URL cannot be parsed, often
	// because of its password, which it quotes.
	proxy = regexp.MustCompile(`(invalid proxy address) .*`)
)

// Redact hides the credentials of URLs in a text. Processes apply it to the errors that they
// print and to every log record.
func Redact(text string) string {
	if strings.Contains(text, "invalid proxy") { // it quotes the address, which may have no scheme
		text = proxy.ReplaceAllString(text, "$1: see HTTP_PROXY and HTTPS_PROXY")
	}
	if !strings.Contains(text, "://") {
		return text
	}
	return credentials.ReplaceAllString(text, "${1}${2}xxxxx@")
}

func redactAttr(_ []string, a slog.Attr) slog.Attr { return RedactAttr(a) }

// RedactAttr hides the credentials of URLs in an attribute, as the loggers of [NewLogger] do.
func RedactAttr(a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(Redact(a.Value.String()))
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(Redact(err.Error()))
			break
		}
		text := fmt.Sprint(a.Value.Any()) // such as a list of URLs
		if redacted := Redact(text); redacted != text {
			a.Value = slog.StringValue(redacted)
		}
	}
	return a
}
