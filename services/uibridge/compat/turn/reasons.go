package turn

import (
	"strings"

	"skandha.dev/services/uibridge/contract"
)

// Reasons says why a person is asked, and what an approval takes, one reason a line.
// It is empty if there is nothing to say.
func Reasons(v *contract.ToolCallRequest) string {
	var out []string
	if w := v.SecurityWarning; w != nil {
		out = append(out, w.Message)
	}
	if len(v.After) > 0 {
		out = append(out, "The model has read texts from outside before: "+strings.Join(v.After, ", ")+".")
	}
	if v.Owner != "" {
		out = append(out, "The tool is that of plugin "+v.Owner+".")
	}
	if v.Answer != nil {
		out = append(out, "The tool does not run: plugin "+string(v.Answer.By)+" answers in its place.")
	}
	if v.Approval != nil {
		out = append(out, v.Approval.Needs()+".")
	}
	return strings.Join(out, "\n")
}
