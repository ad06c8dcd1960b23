package request

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
)

// The methods whose parameters are read here. The specification defines the first two.
const (
	SubmitUserInput     = "submitUserInput"
	ProvideConfirmation = "provideConfirmation"
	CancelTurn          = "cancelTurn"
	RunCommand          = "runCommand"
)

// Paths maps the last segment of a path below a session to the method that it calls.
var Paths = map[string]string{
	"inputs": SubmitUserInput, "confirmations": ProvideConfirmation, "cancels": CancelTurn, "commands": RunCommand,
}

// Origin holds a caller's defaults for what a request may leave out.
type Origin struct {
	Ref    subject.Ref // for requests that do not name a session; may be empty
	Fixed  bool        // always Ref: requests must not name a session
	Source string      // the UI
	// Shown returns the hash that this caller was shown for a confirmation, or "". nil: the
	// caller was shown nothing.
	Shown func(ref subject.Ref, confirmationID string) string
}

// Desk handles requests. It is safe for concurrent use.
type Desk struct {
	backend contract.Backend
	log     *slog.Logger
	own     []string
}

// NewDesk returns a Desk. Methods are those that the transport handles itself, instead of
// with Call.
func NewDesk(b contract.Backend, log *slog.Logger, methods ...string) *Desk {
	return &Desk{
		backend: b, log: log, own: append([]string{SubmitUserInput, ProvideConfirmation, CancelTurn, RunCommand}, methods...),
	}
}

// Names returns all methods, sorted.
func (d *Desk) Names() []string {
	all := append(slices.Clone(d.own), slices.Collect(maps.Keys(d.backend.Methods()))...)
	slices.Sort(all)
	return slices.Compact(all)
}

// Writes reports whether the method writes to the log. Calls of one caller must be made in
// sequence, because their order matters.
func Writes(method string) bool {
	switch method {
	case SubmitUserInput, ProvideConfirmation, CancelTurn, RunCommand:
		return true
	}
	return false
}

// Call calls a method by its name. The parameters are:
//
//	submitUserInput      input, id?, mode?, agent?, session?, files?
//	provideConfirmation  confirmationId, approved, hash?, reason?, always?, agent?, session?, passkey?
//	cancelTurn           sequence?, inputId?, reason?, agent?, session?
//	runCommand           name, args?, id?, agent?, session?
//
// These methods return a [contract.Receipt]. The error is a [contract.Error].
func (d *Desk) Call(
	ctx context.Context, p contract.Principal, o Origin, method string, params json.RawMessage,
) (result any, err error) {
	defer func() {
		if r := recover(); r != nil { // a panic in a method fails only this request
			d.log.Error("method panicked", "method", method, "panic", r, "stack", string(debug.Stack()))
			result, err = nil, contract.ErrorOf(fmt.Errorf("%v", r))
		}
		if err != nil {
			err = d.refusal(ctx, method, err)
		}
	}()
	var right contract.Right
	var call func() (any, error)
	switch method {
	case SubmitUserInput:
		right, call = contract.Talk, func() (any, error) { return d.submit(ctx, p, o, params) }
	case ProvideConfirmation:
		right, call = contract.Approve, func() (any, error) { return d.confirm(ctx, p, o, params) }
	case CancelTurn:
		right, call = contract.Talk, func() (any, error) { return d.cancel(ctx, p, o, params) }
	case RunCommand:
		right, call = contract.Talk, func() (any, error) { return d.command(ctx, p, o, params) }
	default:
		m, ok := d.backend.Methods()[method]
		if !ok {
			return nil, &contract.Error{
				Code: contract.CodeUnknownMethod, Field: "method",
				Message: "unknown method " + clip(method) + "; available: " + strings.Join(d.Names(), ", "),
			}
		}
		right, call = m.Right, func() (any, error) { return m.Call(ctx, p, params) }
	}
	// The backend checks the right again, for the agent too. This check comes first so that
	// a caller without the right learns that, instead of what else is wrong.
	if err := p.Require(right, ""); err != nil {
		return nil, err
	}
	return call()
}

// refusal converts an error into one for the caller, and logs internal errors.
func (d *Desk) refusal(ctx context.Context, method string, err error) error {
	e := contract.ErrorOf(err)
	if ctx.Err() != nil && e.Code == contract.CodeInternal {
		return &contract.Error{
			Code: contract.CodeUnavailable, Message: "no answer in time; a retry with the same id is safe",
		}
	}
	if e.Code == contract.CodeInternal {
		d.log.Error("request failed", "method", method, "error", err)
	}
	return e
}

func (d *Desk) submit(ctx context.Context, p contract.Principal, o Origin, params json.RawMessage) (any, error) {
	var text, id, mode string
	var files []provider.File
	ref, err := o.decodeLast(
		params, []Param{{"files", &files, false}},
		Param{"input", &text, true},
		Param{"id", &id, false},
		Param{"mode", &mode, false},
	)
	if err != nil {
		return nil, err
	}
	return answer(d.backend.Submit(ctx, p, contract.Submission{
		Ref: ref, Text: text, ID: id, Mode: event.InputMode(mode), Source: o.Source, Files: files,
	}))
}

func (d *Desk) confirm(ctx context.Context, p contract.Principal, o Origin, params json.RawMessage) (any, error) {
	a := contract.Answer{Source: o.Source}
	var err error
	if a.Ref, err = o.decodeLast(
		params, []Param{{"passkey", &a.Passkey, false}},
		Param{"confirmationId", &a.ConfirmationID, true},
		Param{"approved", &a.Approved, true},
		Param{"hash", &a.Hash, false},
		Param{"reason", &a.Reason, false},
		Param{"always", &a.Always, false},
	); err != nil {
		return nil, err
	}
	if p := a.Passkey; p != nil && (p.State == "" || len(p.Credential) == 0) {
		return nil, contract.Invalid("passkey", "want an object with state and credential")
	}
	if a.Hash == "" && o.Shown != nil {
		a.Hash = o.Shown(a.Ref, a.ConfirmationID)
	}
	if a.Hash == "" {
		return nil, contract.Invalid("hash",
			"missing, and this connection was not sent the confirmation request; send the request's hash")
	}
	return answer(d.backend.Confirm(ctx, p, a))
}

func (d *Desk) cancel(ctx context.Context, p contract.Principal, o Origin, params json.RawMessage) (any, error) {
	var c contract.Cancellation
	var err error
	if c.Ref, err = o.decode(
		params,
		Param{"sequence", &c.Sequence, false},
		Param{"inputId", &c.InputID, false},
		Param{"reason", &c.Reason, false},
	); err != nil {
		return nil, err
	}
	return answer(d.backend.Cancel(ctx, p, c))
}

// command submits a slash command as a person would type it.
func (d *Desk) command(ctx context.Context, p contract.Principal, o Origin, params json.RawMessage) (any, error) {
	var name, id string
	var args []string
	ref, err := o.decode(
		params,
		Param{"name", &name, true},
		Param{"args", &args, false},
		Param{"id", &id, false},
	)
	if err != nil {
		return nil, err
	}
	words := append([]string{strings.TrimPrefix(name, "/")}, args...)
	for i, w := range words {
		// The backend would read "//" as a text that begins with a slash.
		if f := strings.Fields(w); len(f) == 1 && f[0] == w && (i > 0 || w[0] != '/') {
			continue
		}
		field := "name"
		if i > 0 {
			field = fmt.Sprintf("args[%d]", i-1)
		}
		return nil, contract.Invalid(field, "want one word without white space")
	}
	return answer(d.backend.Submit(ctx, p,
		contract.Submission{Ref: ref, Text: "/" + strings.Join(words, " "), ID: id, Source: o.Source}))
}

// answer leaves out the receipt if there is an error.
func answer(r contract.Receipt, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// decode reads the parameters, and returns the session that they are for.
func (o Origin) decode(raw json.RawMessage, params ...Param) (subject.Ref, error) {
	return o.decodeLast(raw, nil, params...)
}

// decodeLast reads the parameters likewise; last come after agent and session in an array.
func (o Origin) decodeLast(raw json.RawMessage, last []Param, params ...Param) (subject.Ref, error) {
	if o.Fixed {
		return o.Ref, Decode(raw, append(params, last...)...)
	}
	var agent, session string
	params = append(params, Param{"agent", &agent, false}, Param{"session", &session, false})
	if err := Decode(raw, append(params, last...)...); err != nil {
		return subject.Ref{}, err
	}
	if session == "" && (agent == "" || agent == string(o.Ref.Agent)) && o.Ref.Session != "" {
		return o.Ref, nil
	}
	return Ref(cmp.Or(agent, string(o.Ref.Agent)), session)
}
