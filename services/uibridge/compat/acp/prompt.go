package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/safetext"
	"skandha.dev/services/internal/submit"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/rpc/jsonrpc"
)

// prompt is a prompt that waits for the end of its turn.
type prompt struct {
	id      string // the input's
	request string // the id of the client's request
	stopped bool   // the client has cancelled it
	stored  bool   // the bus has acknowledged it
	answer  answerer
}

// The attempts to store an input or a cancel, and the pause between them.
const (
	attempts     = 5
	attemptPause = time.Second
)

// prompt begins a turn. The answer is its end.
func (s *server) prompt(c jsonrpc.Call, answer answerer) {
	var q promptRequest
	err := decode(c.Params, &q)
	var x *session
	if err == nil {
		x, err = s.find(q.SessionID)
	}
	if err != nil {
		answer(nil, err)
		return
	}
	p := &prompt{id: submit.NewID(), request: string(c.ID), answer: answer}
	// Registered before the next message is read, which may cancel it
	if err := x.expect(p); err != nil {
		answer(nil, err)
		return
	}
	s.work.Go(func() {
		if err := x.submit(p, q.Prompt); err != nil && x.forget(p) {
			answer(nil, err)
		}
	})
}

func (x *session) expect(p *prompt) error {
	x.prompting.Lock()
	defer x.prompting.Unlock()
	if x.closed {
		return &contract.Error{Code: contract.CodeConflict, Message: "the session was closed"}
	}
	x.prompts[p.id] = p
	return nil
}

// forget reports whether the prompt was still waiting.
func (x *session) forget(p *prompt) bool {
	x.prompting.Lock()
	defer x.prompting.Unlock()
	_, was := x.prompts[p.id]
	delete(x.prompts, p.id)
	return was
}

func (x *session) waits() bool {
	x.prompting.Lock()
	defer x.prompting.Unlock()
	return len(x.prompts) > 0
}

// stopping reports whether the client has cancelled a prompt that it still waits for.
func (x *session) stopping() bool {
	x.prompting.Lock()
	defer x.prompting.Unlock()
	for _, p := range x.prompts {
		if p.stopped {
			return true
		}
	}
	return false
}

// prompted returns the prompt that an input belongs to, nil if it is not from this client.
func (x *session) prompted(id string) *prompt {
	x.prompting.Lock()
	defer x.prompting.Unlock()
	return x.prompts[id]
}

// submit stores a prompt. It is sent again if the bus does not acknowledge it, with the same id.
func (x *session) submit(p *prompt, blocks []block) error {
	in, err := x.input(blocks)
	if err != nil {
		return err
	}
	in.ID = p.id
	if x.stopped(p, false) {
		if x.forget(p) {
			p.answer(promptResponse{StopReason: cancelled}, nil)
		}
		return nil
	}
	err = x.persist(func(ctx context.Context) error {
		_, err := x.server.sys.Backend.Submit(ctx, x.server.sys.Principal, in)
		return err
	})
	// Core does not know an input that is cancelled before it is stored
	if err == nil && x.stopped(p, true) {
		x.stopTurn(p)
	}
	return err
}

// stopped reports whether the client has cancelled a prompt, and notes whether it is stored.
func (x *session) stopped(p *prompt, stored bool) bool {
	x.prompting.Lock()
	defer x.prompting.Unlock()
	p.stored = stored
	return p.stopped
}

// persist tries to store something several times. What has begun is not given up when the client
// goes away.
func (x *session) persist(store func(context.Context) error) (err error) {
	for range attempts {
		if err = store(context.WithoutCancel(x.life)); err == nil {
			return nil
		}
		if e, ok := errors.AsType[*contract.Error](err); !ok || e.Code != contract.CodeUnavailable {
			return err
		}
		select {
		case <-time.After(attemptPause):
		case <-x.life.Done():
			return err
		}
	}
	return err
}

// input makes an input of content blocks: mentions stay where they are in the text, what is
// embedded follows it, and files are stored as artifacts.
func (x *session) input(blocks []block) (in contract.Submission, err error) {
	in.Ref, in.Source = x.ref, "acp"
	var text, embedded strings.Builder
	for i, b := range blocks {
		at := fmt.Sprintf("prompt[%d]", i)
		switch b.Type {
		case "text":
			text.WriteString(b.Text)
		case "resource_link":
			text.WriteString(x.mention(b.Name, b.URI))
		case "image":
			err = x.attach(&in, at+".data", b.URI, b.MimeType, b.Data)
		case "resource":
			switch r := b.Resource; {
			case r == nil:
				err = contract.Invalid(at+".resource", "missing")
			case r.Text != nil:
				text.WriteString(x.mention("", r.URI))
				fmt.Fprintf(&embedded, "\n\nContent of %s:\n\n%s", inLine(r.URI), *r.Text)
			default:
				text.WriteString(x.mention("", r.URI))
				err = x.attach(&in, at+".resource.blob", r.URI, r.MimeType, r.Blob)
			}
		default:
			err = contract.Invalid(at+".type",
				fmt.Sprintf("is %.40q; want text, resource_link, resource or image", b.Type))
		}
		if err != nil {
			return in, err
		}
	}
	in.Text = text.String() + embedded.String()
	if strings.TrimSpace(in.Text) == "" && len(in.Files) > 0 {
		in.Text = "See the attached files."
	}
	return in, nil
}

// mention names a resource in the text. A file in the workspace has the path by which the
// agent's tools know it.
func (x *session) mention(name, uri string) string {
	name, uri = inLine(name), inLine(uri)
	where := uri
	if u, err := url.Parse(uri); err == nil && u.Scheme == "file" {
		where = u.Path
		if w := x.server.sys.Workspace; w != "" {
			if rel, err := filepath.Rel(w, u.Path); err == nil && filepath.IsLocal(rel) {
				where = inLine(filepath.ToSlash(rel))
			}
		}
	}
	if name == "" || name == where || name == path.Base(where) {
		return "`" + where + "`"
	}
	return name + " (`" + where + "`)"
}

// maxNamed bounds the name and the address of a resource in the text, in bytes.
const maxNamed = 4 << 10

// inLine returns a name in one line without control characters. Spaces stay: a path has them as they are.
func inLine(name string) string {
	return text.Cut(strings.NewReplacer("\n", " ", "\t", " ").Replace(safetext.Clean(name)), maxNamed)
}

// attach stores a file.
func (x *session) attach(in *contract.Submission, field, uri, mediaType string, data []byte) error {
	if len(in.Files) >= event.MaxInputFiles {
		return contract.Invalid(field, fmt.Sprintf("more than %d files", event.MaxInputFiles))
	}
	if len(data) == 0 {
		return contract.Invalid(field, "empty")
	}
	if mediaType == "" {
		mediaType = http.DetectContentType(data)
	}
	mediaType, _, _ = mime.ParseMediaType(mediaType)
	name := path.Base(uri)
	if u, err := url.Parse(uri); err != nil || uri == "" || u.Path == "" || u.Path == "/" {
		name = "file"
		if ext, _ := mime.ExtensionsByType(mediaType); len(ext) > 0 {
			name += ext[0]
		}
	}
	f := provider.File{
		Name: name, MediaType: mediaType, Bytes: int64(len(data)),
		Ref: fmt.Sprintf("%s/uploads/%s-%d-%s", x.ref, time.Now().UTC().Format("20060102-150405.000"), len(in.Files), name),
	}
	if err := f.Check(); err != nil {
		return contract.Invalid(field, err.Error())
	}
	if err := x.server.sys.Store(x.life, f.Ref, data); err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}
	in.Files = append(in.Files, f)
	return nil
}

// cancelSession cancels the prompts of a session.
func (s *server) cancelSession(params json.RawMessage) error {
	var q sessionRequest
	if err := decode(params, &q); err != nil {
		return err
	}
	x, err := s.find(q.SessionID)
	if err == nil {
		x.cancelAll()
	}
	return err
}

// cancelAll asks core to end the turns of all prompts. Their ends are the answers.
func (x *session) cancelAll() {
	x.prompting.Lock()
	all := slices.Collect(maps.Values(x.prompts))
	x.prompting.Unlock()
	for _, p := range all {
		x.cancel(p)
	}
}

// cancelRequest cancels a request that is a prompt. Others end soon.
func (s *server) cancelRequest(params json.RawMessage) error {
	var q struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if err := decode(params, &q); err != nil {
		return err
	}
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	for _, x := range all {
		x.prompting.Lock()
		prompts := slices.Collect(maps.Values(x.prompts))
		x.prompting.Unlock()
		for _, p := range prompts {
			if p.request == string(q.RequestID) {
				x.cancel(p)
			}
		}
	}
	return nil
}

func (x *session) cancel(p *prompt) {
	x.prompting.Lock()
	now := p.stored && !p.stopped
	p.stopped = true
	x.prompting.Unlock()
	if now {
		x.server.work.Go(func() { x.stopTurn(p) })
	}
}

func (x *session) stopTurn(p *prompt) {
	err := x.persist(func(ctx context.Context) error {
		_, err := x.server.sys.Backend.Cancel(ctx, x.server.sys.Principal,
			contract.Cancellation{Ref: x.ref, InputID: p.id, Reason: "cancelled in the editor"})
		return err
	})
	if err != nil {
		x.server.Log.Warn("cancelling a turn failed", "session", x.ref, "error", err)
	}
}

// ended answers the prompt that an input's end belongs to, and reports whether there is one.
func (x *session) ended(v *contract.TurnEnd) bool {
	id := ""
	switch {
	case v.Recorded != nil:
		id = v.Recorded.InputID
	case v.Failed != nil && v.Failed.Code != event.FailDuplicate: // of an input that was stored twice
		id = v.Failed.InputID
	}
	p := x.prompted(id)
	if p == nil || !x.forget(p) {
		return v.Failed != nil && v.Failed.Code == event.FailDuplicate && x.prompted(v.Failed.InputID) != nil
	}
	if v.Recorded != nil {
		p.answer(promptResponse{StopReason: endTurn, Meta: spent(v.Recorded.Usage)}, nil)
		return true
	}
	f := v.Failed
	why := stops[f.Code]
	switch {
	case p.stopped:
		why = cancelled
	case why == "":
		p.answer(nil, &fault{Code: codeInternal, Message: reason(f), Data: failure{f.Code, reason(f), v.Turn, f.Sequence}})
		return true
	case why != cancelled:
		x.say("stopped", "The turn was stopped: "+reason(f))
	}
	p.answer(promptResponse{StopReason: why, Meta: spent(f.Usage)}, nil)
	return true
}

// stops has the failures that are stop reasons of the protocol.
var stops = map[event.FailCode]stopReason{
	event.FailCancelled: cancelled, event.FailInterrupted: cancelled, event.FailReset: cancelled,
	event.FailLimitTokens: maxTokens, event.FailLimitRounds: maxTurnRequests,
	event.FailDenied: refusal, event.FailDropped: refusal,
}

// failure is the data of an error.
type failure struct {
	Code     event.FailCode `json:"code"`
	Message  string         `json:"message"`
	Turn     string         `json:"turn,omitempty"`
	Sequence uint64         `json:"sequence"`
}

func reason(f *event.TurnFailed) string {
	if f.Reason == "" {
		return string(f.Code)
	}
	return f.Reason
}

// spent reports the tokens of a turn. The protocol's own field needs the size of the model's
// context, which is not known.
func spent(u provider.Usage) map[string]any {
	if u == (provider.Usage{}) {
		return nil
	}
	return map[string]any{"skandha.dev": map[string]any{"usage": u}}
}
