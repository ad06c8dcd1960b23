package proposal

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/services/internal/safetext"
)

// Grant says in words which calls a grant covers.
func Grant(g event.Grant) string {
	name := safetext.Visible(g.Tool)
	if g.Hash != "" {
		return "exactly this call of " + name
	}
	if len(g.Args) == 0 {
		return "every call of " + name
	}
	var parts []string
	for _, arg := range slices.Sorted(maps.Keys(g.Args)) {
		pattern := safetext.Visible(g.Args[arg])
		arg = safetext.Visible(arg)
		if below, ok := strings.CutSuffix(pattern, "/*"); ok {
			parts = append(parts, fmt.Sprintf("%s below %s/", arg, below))
		} else {
			parts = append(parts, fmt.Sprintf("%s = %s", arg, pattern))
		}
	}
	return name + " with " + strings.Join(parts, " and ")
}
