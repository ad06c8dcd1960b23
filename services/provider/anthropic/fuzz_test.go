package anthropic

import (
	"encoding/json"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
)

// Whatever a server streams, one event a line, becomes an answer within the limits or an
// error; and the answer can be sent back.
func FuzzEvents(f *testing.F) {
	const begin, delta = `{"type":"content_block_start","index":`, `{"type":"content_block_delta","index":`
	const end = "\n" + `{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":3}}` + "\n" + `{"type":"message_stop"}`
	f.Add(begin + `0,"content_block":{"type":"thinking","thinking":"a\ud800","signature":"c2ln"}}` + "\n" +
		begin + `1,"content_block":{"type":"text","text":"x"}}` + "\n" + delta + `1,"delta":{"type":"text_delta","text":" \n"}}` + "\n" +
		begin + `2,"content_block":{"type":"tool_use","id":"a","name":"b--c","input":{}}}` + "\n" +
		delta + `2,"delta":{"type":"input_json_delta","partial_json":"{\"x"}}` + end)
	f.Add(begin + `0,"content_block":{"type":"redacted_thinking","data":"x"}}` + "\n" +
		begin + `0,"content_block":{"type":"new","text":"y"}}` + "\n" + delta + `0,"delta":{"type":"text_delta","text":"z"}}` + end)
	f.Add(begin + `0,"content_block":{"type":"tool_use","id":"a","name":"b","input":[1]}}` + "\n" +
		begin + `1,"content_block":{"type":"tool_use","id":"a","name":"b","input":"x"}}` + end)
	f.Fuzz(func(t *testing.T, stream string) {
		limits := adapter.DefaultLimits()
		acc := accumulator{limits: limits, delta: func(string, string) {}, clean: strings.TrimSpace}
		for line := range strings.Lines(stream) {
			if acc.add([]byte(line)) != nil {
				return
			}
		}
		resp, err := acc.finish("m")
		if err != nil {
			return
		}
		if why := limits.Check(resp); why != nil {
			t.Fatalf("answered %+v: %v", resp, why)
		}
		m := contract.Message{
			Role: contract.RoleAssistant, Text: resp.TextContent, ToolCalls: resp.ToolCalls, ProviderState: resp.ProviderState,
		}
		if _, own := stateOf(m, "m"); resp.ProviderState != nil && !own {
			t.Fatalf("the state %s is not that of %+v", resp.ProviderState, m)
		}
		c, err := newConversation("m", []contract.Message{{Role: contract.RoleUser, Text: "go"}, m}, keepAll)
		if err != nil {
			t.Fatal(err)
		}
		if b := encode(c.finish()); !json.Valid(b) {
			t.Fatalf("sent %s", b)
		}
	})
}
