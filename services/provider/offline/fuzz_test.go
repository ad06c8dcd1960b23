package offline_test

import (
	"context"
	"encoding/json"
	"testing"

	contract "skandha.dev/pkg/provider"
)

func FuzzAnyMessageIsAnswered(f *testing.F) {
	for _, s := range []string{
		"", "what is 2+2", "write a to b.txt then read b.txt and list files", "\x00\xff", "and and and and",
	} {
		f.Add(s)
	}
	a := model(f, nil)
	f.Fuzz(func(t *testing.T, message string) {
		b, err := json.Marshal(user(message))
		if err != nil {
			t.Skip()
		}
		resp, err := a.Generate(context.Background(), contract.Request{Messages: []json.RawMessage{b}, Tools: everything},
			func(string, string) {})
		if err != nil {
			t.Fatal(err)
		}
		if resp.TextContent == "" && len(resp.ToolCalls) == 0 {
			t.Errorf("%q is answered by nothing", message)
		}
		for _, c := range resp.ToolCalls {
			if !json.Valid(c.Args) {
				t.Errorf("%q: args %s", message, c.Args)
			}
		}
	})
}
