package anthropic

import (
	"regexp"
	"strconv"
	"strings"
)

// thinking is the API's parameter of that name.
type thinking struct {
	Type    string `json:"type"`
	Budget  int    `json:"budget_tokens,omitempty"`
	Display string `json:"display,omitempty"`
}

// leastAnswer is what a budget for thinking leaves of a request's limit, in tokens.
const leastAnswer = 1024

// think returns how the model is to think; nil leaves it to the model.
func (a *Adapter) think(model string, maxTokens int, c *conversation) *thinking {
	budget := min(a.cfg.ThinkingTokens, maxTokens-leastAnswer)
	switch {
	case a.cfg.ThinkingTokens == 0:
		return nil
	case !budgeted(model):
		return &thinking{Type: "adaptive", Display: "summarized"}
	case budget < leastThinking || !c.mayThink():
		return nil
	}
	return &thinking{Type: "enabled", Budget: budget}
}

var version = regexp.MustCompile(`claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2}))?(?:\D|$)`)

// budgeted reports whether a model takes a budget for thinking, and a temperature: every
// Claude up to 4.6 does, and what other servers offer. Later ones refuse both.
func budgeted(model string) bool {
	if !strings.Contains(model, "claude") {
		return true
	}
	v := version.FindStringSubmatch(model)
	if v == nil {
		return false // no number, so a recent one
	}
	major, _ := strconv.Atoi(v[1]) // digits; more of them than fit are many
	minor, _ := strconv.Atoi(v[2]) // digits, or none
	return major < 4 || major == 4 && minor <= 6
}
