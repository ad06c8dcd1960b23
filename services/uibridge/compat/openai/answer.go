package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/compat/turn"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/eventstream"
	"skandha.dev/services/uibridge/request"
)

// answer is one request in progress.
type answer struct {
	handler *Handler
	p       contract.Principal
	c       *completion
	id      string // the input's; "": a random one
	w       http.ResponseWriter
	created int64

	ref     subject.Ref
	taken   *remembered // the conversation that the request continues
	turn    *turn.Turn
	stream  *eventstream.Writer // nil: answered all at once
	live    turn.Text
	began   bool            // the stream has sent the role
	streams bool            // some of the plan's text was passed on
	passed  bool            // some text was
	content strings.Builder // the content in the log
	usage   provider.Usage
	waiting []*contract.ToolCallRequest // pending confirmation requests
	since   time.Time                   // when the first of them arrived
}

// between separates the texts of a turn.
const between = "\n\n"

// serve answers the request.
func (a *answer) serve(ctx context.Context, named subject.Session) error {
	if a.c.Metadata[metaConfirmations] == "deny" {
		if err := a.p.Require(contract.Approve, a.c.agent); err != nil {
			return err
		}
	}
	a.ref = subject.Ref{Agent: a.c.agent, Session: a.session(named)}
	if err := a.submit(ctx); err != nil {
		a.putBack()
		return err
	}
	defer a.turn.Close()
	t := a.turn
	a.w.Header().Set("X-Skandha-Session", string(a.ref.Session))
	a.w.Header().Set("X-Skandha-Sequence", fmt.Sprint(t.Receipt.Sequence))
	if a.c.Stream {
		a.stream = eventstream.New(a.w, a.handler.cfg.WriteWait)
	}
	return a.wait(ctx)
}

// submit sends the last message to the session.
func (a *answer) submit(ctx context.Context) error {
	t, err := turn.Attach(ctx, a.handler.backend, a.p, a.ref, "", "openai")
	if err != nil {
		return err
	}
	text, err := a.c.text(t.Attached.After == "0")
	if err == nil {
		err = t.Submit(ctx, contract.Submission{Text: text, ID: a.id, Source: "openai"})
	}
	if err != nil {
		t.Close()
		return err
	}
	a.turn = t
	return nil
}

// session returns the session of the conversation, or a new one.
func (a *answer) session(named subject.Session) subject.Session {
	again := requestKey(a.p.Name, a.c.agent, a.id)
	if a.id != "" {
		if s, ok := a.handler.conversations.get(again); ok {
			return s
		}
	}
	s := named
	if s == "" {
		s = a.continued()
	}
	if a.id != "" {
		a.handler.conversations.put(again, s)
	}
	return s
}

func (a *answer) continued() subject.Session {
	if before := a.c.before(); len(before) > 0 {
		k := conversationKey(a.p.Name, a.c.agent, before)
		if s, ok := a.handler.conversations.take(k); ok {
			a.taken = &remembered{k, s}
			return s
		}
	}
	return request.Fresh()
}

// putBack makes the conversation available again: nothing was added to it.
func (a *answer) putBack() {
	if a.taken != nil {
		a.handler.conversations.put(a.taken.key, a.taken.session)
	}
}

// wait follows the turn to its end.
func (a *answer) wait(ctx context.Context) error {
	err := a.turn.Each(ctx, a.handler.cfg.KeepAlive, func(v any, _ string) error { return a.handle(ctx, v) }, a.idle)
	if err == nil {
		a.remember()
		return a.finish()
	}
	a.disconnected(ctx)
	e := toAPIError(err)
	e.taken = true
	if a.stream == nil || !a.stream.Begun() {
		return e
	}
	a.handler.failed.Add(1)
	a.handler.log.Debug("a stream ended early", "session", a.ref, "error", err)
	_ = a.stream.Data(e.body()) // the client may have disconnected, which may be the cause
	return nil
}

// disconnected cancels the turn of a client that has disconnected, if it asked for that.
func (a *answer) disconnected(ctx context.Context) {
	var known *contract.Error
	if a.c.Metadata[metaDisconnect] != "true" || ctx.Err() == nil || errors.As(context.Cause(ctx), &known) {
		return // the bridge stops, or the token has expired: the client has not disconnected
	}
	c := contract.Cancellation{Ref: a.ref, Sequence: a.turn.Receipt.Sequence, Reason: "the client has disconnected"}
	if _, err := a.handler.backend.Cancel(context.WithoutCancel(ctx), a.p, c); err != nil {
		a.handler.log.Warn("cancelling the turn of a disconnected client failed", "session", a.ref, "error", err)
	}
}

// remember notes that the conversation, with the answer, continues in this session.
func (a *answer) remember() {
	all := append(slices.Clone(a.c.Messages), message{Role: "assistant", text: a.content.String()})
	a.handler.conversations.put(conversationKey(a.p.Name, a.c.agent, all), a.ref.Session)
}

// idle keeps a stream alive. Without a stream a client sees nothing, so idle ends a request
// that waits too long for a person, before the client's own timeout.
func (a *answer) idle() error {
	if a.stream != nil {
		return a.stream.KeepAlive()
	}
	if len(a.waiting) == 0 || time.Since(a.since) < a.handler.cfg.DecisionWait {
		return nil
	}
	q := a.waiting[0]
	e := errorOf(http.StatusConflict, "confirmation_required", fmt.Sprintf(
		"%s waits for approval until %s; decide on the page, in session %s of agent %s, or with "+
			"POST /v1/agents/%s/sessions/%s/confirmations with confirmationId %s; the turn continues, "+
			"and the same request with its Idempotency-Key gets its answer",
		q.ToolName, q.ExpiresAt.UTC().Format(time.RFC3339), a.ref.Session, a.ref.Agent, a.ref.Agent, a.ref.Session,
		q.ConfirmationID))
	return e
}

// handle handles one notification.
func (a *answer) handle(ctx context.Context, v any) error {
	switch v := v.(type) {
	case *contract.PlanRequested:
		early, _ := a.live.Begin(v.Plan, v.Attempt)
		for _, d := range early {
			if err := a.written(d); err != nil {
				return err
			}
		}
	case *contract.Delta:
		return a.written(v)
	case *contract.PlanCompleted:
		if v.Error == nil { // else the turn fails
			return a.completed(v)
		}
	case *contract.ToolCallRequest:
		return a.asked(ctx, v)
	case *contract.ConfirmationResolved:
		a.waiting = slices.DeleteFunc(a.waiting,
			func(q *contract.ToolCallRequest) bool { return q.ConfirmationID == v.ConfirmationID })
	case *contract.TurnEnd:
		return a.end(v)
	}
	return nil
}

// written passes on a delta.
func (a *answer) written(d *contract.Delta) error {
	if a.stream == nil || a.c.Metadata[metaDeltas] == "off" {
		return nil
	}
	text, _ := a.live.Delta(d)
	return a.pass(text)
}

// completed handles a plan's complete text.
func (a *answer) completed(v *contract.PlanCompleted) error {
	rest, ok := a.live.Complete(v.Plan, v.Text)
	if !ok {
		return errorOf(http.StatusConflict, "text_replaced",
			"the answer was rewritten or changed after part of it was sent; discard that part. The turn continues "+
				"in the session; send the request again with its Idempotency-Key, or without stream")
	}
	if v.Text != "" {
		if a.content.Len() > 0 {
			a.content.WriteString(between)
		}
		a.content.WriteString(v.Text)
	}
	err := a.pass(rest)
	a.streams = false
	return err
}

// pass passes on a piece of text.
func (a *answer) pass(text string) error {
	if a.stream == nil || text == "" {
		return nil
	}
	if a.passed && !a.streams {
		text = between + text
	}
	a.passed, a.streams = true, true
	return a.chunk(delta{Content: text}, nil)
}

// asked reports a confirmation request in a stream, or denies it if the client asked for
// that.
func (a *answer) asked(ctx context.Context, q *contract.ToolCallRequest) error {
	if a.c.Metadata[metaConfirmations] != "deny" {
		return a.waits(q)
	}
	_, err := a.handler.backend.Confirm(context.WithoutCancel(ctx), a.p, contract.Answer{
		Ref: a.ref, ConfirmationID: q.ConfirmationID, Hash: q.Hash, Source: "openai",
		Reason: "the client does not wait for approvals",
	})
	return err
}

// maxArgs limits the arguments of a call that a stream shows, in bytes.
const maxArgs = 400

// waits reports a pending request outside the content, which must equal the log's.
func (a *answer) waits(q *contract.ToolCallRequest) error {
	if a.stream == nil {
		if len(a.waiting) == 0 {
			a.since = time.Now()
		}
		a.waiting = append(a.waiting, q)
		return nil
	}
	args := text.Cut(string(q.Args), maxArgs)
	why := ""
	if q.SecurityWarning != nil {
		why = " " + q.SecurityWarning.Message
	}
	return a.chunk(delta{Reasoning: fmt.Sprintf(
		"Waiting for approval of %s %s in another UI, in session %s, until %s.%s\n",
		q.ToolName, args, a.ref.Session, q.ExpiresAt.UTC().Format(time.TimeOnly+" UTC"), why)}, nil)
}

func (a *answer) end(v *contract.TurnEnd) error {
	switch {
	case v.Failed != nil:
		return failed(v.Failed)
	case v.Recorded == nil:
		return fmt.Errorf("decoding the turn's end failed")
	}
	a.usage = v.Recorded.Usage
	if a.content.Len() == 0 { // a slash command's answer
		a.content.WriteString(v.Recorded.Answer)
		return a.pass(v.Recorded.Answer)
	}
	return nil
}

// The response types.
type (
	reply struct {
		ID      string    `json:"id"`
		Object  string    `json:"object"`
		Created int64     `json:"created"`
		Model   string    `json:"model"`
		Choices []choice  `json:"choices"`
		Usage   *apiUsage `json:"usage,omitempty"`
	}
	choice struct {
		Index        int           `json:"index"`
		Message      *replyMessage `json:"message,omitempty"`
		Delta        *delta        `json:"delta,omitempty"`
		Logprobs     *float64      `json:"logprobs"` // always null
		FinishReason *string       `json:"finish_reason"`
	}
	replyMessage struct {
		Role    string  `json:"role"`
		Content string  `json:"content"`
		Refusal *string `json:"refusal"` // always null
	}
	delta struct {
		Role    string `json:"role,omitempty"`
		Content string `json:"content,omitempty"`
		// Reasoning is not a field of OpenAI's API. Servers of reasoning models send it, and
		// clients that support it show it separately.
		Reasoning string `json:"reasoning_content,omitempty"`
	}
	apiUsage struct {
		PromptTokens     int64 `json:"prompt_tokens"`
		CompletionTokens int64 `json:"completion_tokens"`
		TotalTokens      int64 `json:"total_tokens"`
	}
)

var stop = "stop"

func (a *answer) reply(object string, choices ...choice) reply {
	return reply{
		ID: fmt.Sprintf("chatcmpl-%s-%d", a.ref.Session, a.turn.Receipt.Sequence), Object: object, Created: a.created,
		Model: a.c.Model, Choices: choices,
	}
}

func (a *answer) used() *apiUsage {
	u := a.usage
	return &apiUsage{
		PromptTokens: u.InputTokens, CompletionTokens: u.OutputTokens, TotalTokens: u.InputTokens + u.OutputTokens,
	}
}

// chunk sends a chunk of a stream. The first one is preceded by one with the role.
func (a *answer) chunk(d delta, finish *string) error {
	if !a.began {
		a.began = true
		if err := a.send(a.reply("chat.completion.chunk", choice{Delta: &delta{Role: "assistant"}})); err != nil {
			return err
		}
	}
	return a.send(a.reply("chat.completion.chunk", choice{Delta: &d, FinishReason: finish}))
}

func (a *answer) send(r reply) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding a chunk: %w", err)
	}
	return a.stream.Data(b)
}

// finish ends the answer.
func (a *answer) finish() error {
	if a.stream == nil {
		r := a.reply("chat.completion", choice{
			Message: &replyMessage{Role: "assistant", Content: a.content.String()}, FinishReason: &stop,
		})
		r.Usage = a.used()
		request.JSON(a.w, http.StatusOK, r)
		return nil
	}
	err := a.chunk(delta{}, &stop)
	if o := a.c.StreamOptions; err == nil && o != nil && o.IncludeUsage {
		r := a.reply("chat.completion.chunk")
		r.Choices, r.Usage = []choice{}, a.used()
		err = a.send(r)
	}
	if err == nil {
		err = a.stream.Data([]byte("[DONE]"))
	}
	if err != nil {
		a.handler.log.Debug("finishing a stream failed", "session", a.ref, "error", err)
	}
	return nil // the response has begun, so no error can be sent
}
