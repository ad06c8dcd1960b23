package gemini_test

import (
	"errors"
	"testing"

	"skandha.dev/pkg/provider"
)

// Whatever an answer consists of, it is an answer or a failure, and the conversation goes on.
// The SDK alone panics at some of these parts.
func TestOddAnswers(t *testing.T) {
	wrap := func(part string) string {
		return `[{"candidates": [{"content": {"parts": [{"text": "x"}, ` + part + `]}, "finishReason": "STOP"}]}]`
	}
	for _, body := range []string{
		wrap(`{}`), wrap(`null`), wrap(`7`), wrap(`{"text": null}`), wrap(`{"text": 7}`),
		wrap(`{"thoughtSignature": "eA=="}`),
		wrap(`{"functionCall": null}`), wrap(`{"functionCall": {"name": "a", "args": null}}`),
		wrap(`{"functionCall": {"name": "a", "args": [1]}, "text": "both"}`),
		wrap(`{"functionResponse": {"name": "a", "response": {}}}`),
		wrap(`{"inlineData": {"mimeType": "x", "data": "eA=="}}`),
		wrap(`{"executableCode": {"code": "x", "language": "PYTHON"}}`), wrap(`{"later": {"deep": [1e400]}}`),
		`[null]`, `[{}]`, `[[]]`, `[7]`, `[{"candidates": [null]}]`, `[{"candidates": [{}]}, {"promptFeedback": null}]`,
		`[{"candidates": [{"content": null, "finishReason": "STOP"}]}]`, `[{"usageMetadata": {"promptTokenCount": "many"}}]`,
	} {
		_, m := serve(t, writes(body), answers("STOP", `{"text":"done"}`))
		resp, err := ask(t, m, request(user("go")))
		if err != nil {
			_ = fails(t, err)
			continue
		}
		results := make([]string, len(resp.ToolCalls))
		talk := append([]provider.Message{user("go")}, turn(t, resp, results...)...)
		var e *provider.Error
		if resp, err := ask(t, m, request(append(talk, user("more"))...)); errors.As(err, &e) || resp.TextContent != "done" {
			t.Errorf("after %s: %+v, %v", body, resp, err)
		}
	}
}
