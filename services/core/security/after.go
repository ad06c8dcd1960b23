package security

import (
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/nearest"
)

// The labels of texts from outside, as decide.Labels gives them: some have no detail, others have a
// detail after a colon.
var (
	bareLabels = []string{"file", "memory", "web"}
	kinds      = []string{"chat", "email", "listener", "mcp", "mqtt", event.OriginSchedule, "sensor", "tool", "webhook"}
)

// after checks that a condition can match a label. A plugin's inputs may have an origin of another
// kind, which then has a detail.
func (c *checker) after(at, p string) {
	kind, _, detail := strings.Cut(p, ":")
	known := slices.Concat(kinds, bareLabels)
	near := nearest.Word(strings.ToLower(kind), known)
	switch {
	case p == "" || p == Untrusted || slices.Contains(bareLabels, p), detail && slices.Contains(kinds, kind), wild(kind):
	case slices.Contains(kinds, p):
		c.add("%s is %q, which matches no text; want %s:* for all of them", at, p, p)
	case detail && near == "" && event.Origin(p).Check() == nil:
	default:
		c.add("%s is %q, which matches no text; want %s, %s, or one of %s with a colon and a pattern, such as email:*",
			at, p, Untrusted, strings.Join(bareLabels, ", "), strings.Join(kinds, ", "))
	}
}
