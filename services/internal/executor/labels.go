package executor

import (
	"slices"

	"skandha.dev/pkg/tool"
)

// AddLabels adds labels of texts from outside to a list, each once, as far as there is room: a list
// has at most [tool.MaxAfter].
func AddLabels(list []string, more ...string) []string {
	for _, label := range more {
		if label != "" && len(list) < tool.MaxAfter && !slices.Contains(list, label) {
			list = append(slices.Clip(list), label)
		}
	}
	return list
}
