package bus_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
)

func TestWhatIsAnAnswerOfTheServer(t *testing.T) {
	from := nats.Header{"Nats-Stream": {"S"}, "Nats-Sequence": {"7"}}
	for _, c := range []struct {
		about  string
		header nats.Header
		body   string
		want   bool
	}{
		{"what a direct get found", from, `{"text":"x"}`, true},
		{"an acknowledgement", nil, `{"stream":"KV_effects", "seq":3}`, true},
		{"a refused store", nil, `{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"seq":0}`, true},
		{"a page of the API", nil, `{"type":"io.nats.jetstream.api.v1.stream_info_response","total":0}`, true},
		{"an input", nil, `{"text":"x"}`, false},
		{"the failure of a plugin's model", nil, `{"error":{"code":"rate_limited","message":"not today","retryable":true}}`, false},
		{"one with headers", nats.Header{"Skandha-Error": {"internal"}}, `{"error":{"code":1}}`, false},
		{"nothing", nil, ``, false},
	} {
		if got := bus.IsAnswer(c.header, []byte(c.body)); got != c.want {
			t.Errorf("%s: %v, want %v", c.about, got, c.want)
		}
	}
}
