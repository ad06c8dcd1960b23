package coreapi

import (
	"encoding/json"

	"skandha.dev/pkg/bus"
)

// Answer answers a request with the result of f as JSON, or with its error. A
// [json.RawMessage] is sent as it is.
func Answer(q *bus.Request, f func(*bus.Request) (any, error)) {
	v, err := f(q)
	if err == nil {
		b, encoded := v.(json.RawMessage)
		if !encoded {
			b, err = json.Marshal(v)
		}
		if err == nil {
			err = q.Reply(b)
		}
	}
	if err != nil {
		// If this fails, too, the caller has disconnected.
		_ = q.ReplyError(err)
	}
}
