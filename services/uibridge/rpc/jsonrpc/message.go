package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"skandha.dev/services/uibridge/contract"
)

// MaxBatch is the maximum number of requests in a batch.
const MaxBatch = 64

const version = "2.0"

// Call is a request, or a notification if it has no id. If the message is neither, Failed
// is the answer to it.
type Call struct {
	ID     json.RawMessage // as received; nil: a notification
	Method string
	Params json.RawMessage // an object, an array or nothing
	Failed []byte
}

var null = json.RawMessage("null")

// Parse reads a message. Batch reports that the answers must be sent as an array.
func Parse(body []byte) (calls []Call, batch bool) {
	body = bytes.Trim(body, " \t\r\n") // JSON's white space, which is a subset of Unicode's
	if !json.Valid(body) {
		var v any
		return refused(null, codeParse,
			contract.Invalid("", fmt.Sprintf("the message is not JSON: %v", json.Unmarshal(body, &v)))), false
	}
	if body[0] != '[' {
		return []Call{one(body)}, false
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(body, &parts); err != nil { // it is valid JSON, so it can only be nested too deeply
		return refused(null, codeParse, contract.Invalid("", err.Error())), false
	}
	switch {
	case len(parts) == 0:
		return refused(null, codeRequest, contract.Invalid("", "the batch is empty")), false
	case len(parts) > MaxBatch:
		return refused(null, codeRequest, contract.Invalid("", fmt.Sprintf(
			"the batch has %d requests; the limit is %d", len(parts), MaxBatch))), false
	}
	for _, p := range parts {
		calls = append(calls, one(p))
	}
	return calls, true
}

func refused(id json.RawMessage, number int, e *contract.Error) []Call {
	return []Call{{ID: id, Failed: Failure(id, number, e)}}
}

// one reads one request. Names are case-sensitive; members that the standard does not
// define are ignored.
func one(body json.RawMessage) Call {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return invalid(null, "", "want an object with jsonrpc, method, params and id")
	}
	id, given := members["id"]
	if given && !isID(id) {
		return invalid(null, "id", "want a string, a number or null")
	}
	answerTo := id
	if !given {
		answerTo = null
	}
	var v string
	if err := json.Unmarshal(members["jsonrpc"], &v); err != nil || v != version {
		return invalid(answerTo, "jsonrpc", `want "2.0"`)
	}
	c := Call{ID: id, Params: members["params"]}
	if m := members["method"]; len(m) == 0 || m[0] != '"' || json.Unmarshal(m, &c.Method) != nil {
		return invalid(answerTo, "method", "want the name of a method")
	}
	if len(c.Params) > 0 && c.Params[0] != '{' && c.Params[0] != '[' {
		return invalid(answerTo, "params", `want an object, an array such as ["hello"], or none`)
	}
	return c
}

func invalid(id json.RawMessage, field, message string) Call {
	return refused(id, codeRequest, contract.Invalid(field, message))[0]
}

// isID reports whether a value is allowed as an id.
func isID(v json.RawMessage) bool {
	switch v[0] {
	case '{', '[', 't', 'f':
		return false
	}
	return true
}

type answer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result"`
}

type failed struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   errorObject     `json:"error"`
}

type errorObject struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    *contract.Error `json:"data"`
}

// Success encodes an answer with a result.
func Success(id json.RawMessage, result any) ([]byte, error) {
	return json.Marshal(answer{version, id, result})
}

// Failure encodes an answer with an error.
func Failure(id json.RawMessage, number int, e *contract.Error) []byte {
	b, err := json.Marshal(failed{version, id, errorObject{number, e.Error(), e}})
	if err != nil { // cannot happen: strings, numbers, and an id that was read from JSON
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"internal"}}`,
			Number(contract.CodeInternal))
	}
	return b
}

// AppendNotification appends a notification. Its parameters were encoded once for all
// receivers; its place is inserted as their first member.
func AppendNotification(b []byte, n contract.Notification) []byte {
	b = append(b, `{"jsonrpc":"2.0","method":`...)
	b = strconv.AppendQuote(b, n.Method)
	b = append(b, `,"params":`...)
	params := bytes.TrimSpace(n.Params)
	if len(params) < 2 || params[0] != '{' {
		params = []byte("{}")
	}
	if n.ID == "" {
		b = append(b, params...)
	} else {
		b = append(b, `{"id":`...)
		b = strconv.AppendQuote(b, n.ID)
		if rest := bytes.TrimSpace(params[1:]); rest[0] != '}' {
			b = append(b, ',')
		}
		b = append(b, params[1:]...)
	}
	return append(b, '}')
}
