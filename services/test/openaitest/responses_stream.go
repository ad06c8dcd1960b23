package openaitest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/scripted"
)

// ResponsesStream writes an answer event by event, as the API does: the response that
// begins, a reasoning item, the items of the answer, and the response that is complete.
// Between them it writes what a client must ignore.
type ResponsesStream struct {
	w        http.ResponseWriter
	sequence int
	items    []json.RawMessage // complete
	ids      []string
	message  string          // id of the message that is being written
	text     strings.Builder // of that message
	refuses  bool            // that message does
}

// NewResponsesStream prepares a stream; nothing is sent before its first event.
func NewResponsesStream(w http.ResponseWriter) *ResponsesStream { return &ResponsesStream{w: w} }

// Event writes one event; fields are the JSON members that follow its type and number.
func (s *ResponsesStream) Event(kind, fields string) {
	if s.sequence == 0 {
		s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	if s.sequence%7 == 3 {
		fmt.Fprint(s.w, ": keep-alive\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n"+
			"event: response.sparkle.delta\ndata: {\"type\":\"response.sparkle.delta\",\"delta\":{\"x\":[1]},\"item\":7}\n\n")
	}
	fmt.Fprintf(s.w, "event: %s\ndata: {\"type\":%q,\"sequence_number\":%d,%s}\n\n", kind, kind, s.sequence, fields)
	s.sequence++
	_ = http.NewResponseController(s.w).Flush()
}

// Begin writes the events before the first item, and the reasoning of the model.
func (s *ResponsesStream) Begin() {
	if s.sequence > 0 {
		return
	}
	s.Event("response.created", `"response":`+s.response("in_progress", "null", "null"))
	s.Event("response.in_progress", `"response":`+s.response("in_progress", "null", "null"))
	id := "rs_" + rand.Text()
	s.Event("response.output_item.added", fmt.Sprintf(
		`"output_index":%d,"item":{"id":%q,"type":"reasoning","encrypted_content":"begins","summary":[]}`, len(s.items), id))
	s.piece("response.reasoning_summary_text.delta", id, `"summary_index":0`, "I think.")
	s.Item(id, fmt.Sprintf(
		`{"id":%q,"type":"reasoning","encrypted_content":%q,"summary":[{"type":"summary_text","text":"I think."}],"n":1.50}`,
		id, rand.Text()+"=<&>"))
}

// piece writes a piece of the item that is being written.
func (s *ResponsesStream) piece(kind, id, part, delta string) {
	s.Event(kind, fmt.Sprintf(`"item_id":%q,"output_index":%d,%s,"delta":%s,"obfuscation":%q`, id, len(s.items), part,
		quote(delta), rand.Text()[:4]))
}

// Item writes that an item, a JSON object, is complete.
func (s *ResponsesStream) Item(id, item string) {
	s.Event("response.output_item.done", fmt.Sprintf(`"output_index":%d,"item":%s`, len(s.items), item))
	s.items, s.ids = append(s.items, json.RawMessage(item)), append(s.ids, id)
}

// Text writes a piece of the text.
func (s *ResponsesStream) Text(piece string) { s.say("response.output_text.delta", piece) }

// Refusal writes a piece of a refusal.
func (s *ResponsesStream) Refusal(piece string) {
	s.refuses = true
	s.say("response.refusal.delta", piece)
}

func (s *ResponsesStream) say(kind, piece string) {
	s.Begin()
	if s.message == "" {
		s.message = "msg_" + rand.Text()
		s.Event("response.output_item.added", fmt.Sprintf(
			`"output_index":%d,"item":{"id":%q,"type":"message","status":"in_progress","role":"assistant","content":[]}`,
			len(s.items), s.message))
		s.Event("response.content_part.added", fmt.Sprintf(
			`"item_id":%q,"output_index":%d,"content_index":0,"part":{"type":"output_text","annotations":[],"text":""}`,
			s.message, len(s.items)))
	}
	s.text.WriteString(piece)
	s.piece(kind, s.message, `"content_index":0,"logprobs":[]`, piece)
}

// endMessage completes the message that is being written.
func (s *ResponsesStream) endMessage(phase string) {
	if s.message == "" {
		return
	}
	content := `{"type":"output_text","annotations":[],"logprobs":[],"text":%s}`
	if s.refuses {
		content = `{"type":"refusal","refusal":%s}`
	}
	s.Item(s.message, fmt.Sprintf(`{"id":%q,"type":"message","status":"completed","role":"assistant","phase":%q,"content":[`+
		content+`]}`, s.message, phase, quote(s.text.String())))
	s.message, s.refuses = "", false
	s.text.Reset()
}

// Call writes a call, its arguments cut wherever it hurts.
func (s *ResponsesStream) Call(c contract.ToolCall) {
	s.Begin()
	s.endMessage("commentary")
	args := written(c.Args)
	id := "fc_" + rand.Text()
	item := func(status, args string) string {
		return fmt.Sprintf(`{"id":%q,"type":"function_call","status":%q,"arguments":%s,"call_id":%q,"name":%q}`, id, status,
			quote(args), "call_"+c.ID, subject.Encode(c.Tool))
	}
	s.Event("response.output_item.added", fmt.Sprintf(`"output_index":%d,"item":%s`, len(s.items), item("in_progress", "")))
	for _, piece := range scripted.Pieces(args) {
		s.piece("response.function_call_arguments.delta", id, `"x":null`, piece)
	}
	s.Event("response.function_call_arguments.done", fmt.Sprintf(`"item_id":%q,"output_index":%d,"arguments":%s`, id,
		len(s.items), quote(args)))
	s.Item(id, item("completed", args))
}

// close completes the last item, and returns all of them with their ids.
func (s *ResponsesStream) close() ([]string, []json.RawMessage) {
	s.Begin()
	s.endMessage("final_answer")
	return s.ids, s.items
}

// Finish ends the answer: its status is completed or incomplete, and then there is a reason.
// A usage that is unknown is not sent.
func (s *ResponsesStream) Finish(status, reason string, u contract.Usage) {
	s.close()
	details, usage := "null", "null"
	if reason != "" {
		details = fmt.Sprintf(`{"reason":%q}`, reason)
	}
	if u.Uncounted == 0 {
		usage = fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},"output_tokens":%d,`+
			`"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}`,
			u.InputTokens, u.CachedTokens, u.CacheWriteTokens, u.OutputTokens, u.ReasoningTokens, u.InputTokens+u.OutputTokens)
	}
	s.Event("response."+status, `"response":`+s.response(status, details, usage))
}

// Fail ends the answer with an error.
func (s *ResponsesStream) Fail(code, message string) {
	s.Event("response.failed", fmt.Sprintf(`"response":{"id":"resp_1","object":"response","status":"failed","output":[],`+
		`"model":%q,"error":{"code":%q,"message":%s}}`, Model, code, quote(message)))
}

func (s *ResponsesStream) response(status, details, usage string) string {
	output, err := json.Marshal(s.items)
	if err != nil {
		panic(err) // an item that a test wrote is no JSON
	}
	return fmt.Sprintf(`{"id":"resp_1","object":"response","created_at":1700000000,"status":%q,"error":null,`+
		`"incomplete_details":%s,"model":%q,"output":%s,"store":false,"usage":%s}`,
		status, details, Model+"-2026-01-01", output, usage)
}
