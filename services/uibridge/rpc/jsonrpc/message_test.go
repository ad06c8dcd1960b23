package jsonrpc

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/uibridge/contract"
)

func TestNotificationsCarryTheirPlaceInFront(t *testing.T) {
	for _, k := range []struct {
		n    contract.Notification
		want string
	}{
		{
			contract.Notification{ID: "12.0", Method: "onX", Params: json.RawMessage(`{"a":1}`)},
			`{"jsonrpc":"2.0","method":"onX","params":{"id":"12.0","a":1}}`,
		},
		{
			contract.Notification{ID: "12.h", Method: "onX", Params: json.RawMessage(` { } `)},
			`{"jsonrpc":"2.0","method":"onX","params":{"id":"12.h" }}`,
		},
		{contract.Notification{ID: "12.0", Method: "onX"}, `{"jsonrpc":"2.0","method":"onX","params":{"id":"12.0"}}`},
		{
			contract.Notification{Method: "onX", Params: json.RawMessage(`{"a":1}`)},
			`{"jsonrpc":"2.0","method":"onX","params":{"a":1}}`,
		},
		{contract.Notification{Method: "onX"}, `{"jsonrpc":"2.0","method":"onX","params":{}}`},
	} {
		shared := slices.Clone(k.n.Params)
		got := string(AppendNotification(nil, k.n))
		if got != k.want || !json.Valid([]byte(got)) {
			t.Errorf("%+v is written as %s, want %s", k.n, got, k.want)
		}
		if string(shared) != string(k.n.Params) {
			t.Errorf("what all share was changed to %s", k.n.Params)
		}
	}
}

func TestEveryCodeHasANumberOfItsOwn(t *testing.T) {
	seen := map[int]contract.Code{}
	for code, n := range numbers {
		if seen[n] != "" {
			t.Errorf("%s and %s are both %d", code, seen[n], n)
		}
		seen[n] = code
		if Number(code) != n {
			t.Errorf("%s is %d", code, Number(code))
		}
		own := n <= -32000 && n >= -32099
		if standard := n <= -32600 && n >= -32603; !own && !standard {
			t.Errorf("%s is %d, which is not the protocol's to give", code, n)
		}
	}
	if Number("new") != -32603 {
		t.Errorf("an unknown code is %d", Number("new"))
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}`, `{"jsonrpc":"2.0","method":"update"}`, `[]`,
		`[1,2,3]`, `{`, `null`, `1e999`,
		`[{"jsonrpc":"2.0","method":"sum","params":[1],"id":"1"},{"foo":"boo"}]`, `{"jsonrpc":"2.0","method":"x","id":{}}`,
		`{"jsonrpc":"2.0","method":1,"params":"bar"}`,
		`{"jsonrpc":"2.0","method":"x","id":null,"params":{}}`, `{"jsonrpc":"2.0","id":1.5e3,"method":"\ud800"}`,
		` [ {"id" : "<" } ] `, `{"a":{"a":{}},"jsonrpc":null}`,
		"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"x\"}", strings.Repeat("[", 20000) + strings.Repeat("]", 20000),
		`{"jsonrpc":"2.0","method":null,"id":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		calls, batch := Parse(body)
		if len(calls) == 0 || len(calls) > MaxBatch || !batch && len(calls) != 1 {
			t.Fatalf("%d calls, batch %t", len(calls), batch)
		}
		if !json.Valid(body) && (batch || calls[0].Failed == nil) {
			t.Fatal("what is no JSON is taken for a request")
		}
		for _, k := range calls {
			answer := k.Failed
			if answer == nil {
				if len(k.Params) > 0 && k.Params[0] != '[' && k.Params[0] != '{' {
					t.Fatalf("the parameters are %s", k.Params)
				}
				if k.ID == nil {
					continue
				}
				var err error
				if answer, err = Success(k.ID, struct{}{}); err != nil {
					t.Fatal(err)
				}
			}
			var m struct {
				JSONRPC string          `json:"jsonrpc"`
				ID      json.RawMessage `json:"id"`
				Result  json.RawMessage `json:"result"`
				Error   *errorObject    `json:"error"`
			}
			if err := json.Unmarshal(answer, &m); err != nil || m.JSONRPC != "2.0" || len(m.ID) == 0 ||
				(m.Result == nil) == (m.Error == nil) || !isID(m.ID) {
				t.Fatalf("answered %s, %v", answer, err)
			}
		}
	})
}
