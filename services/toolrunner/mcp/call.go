package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptrace"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/toolrunner/tools"
)

// ErrNotSent is wrapped by the errors of calls that certainly did not reach a server.
var ErrNotSent = errors.New("the call was not sent")

// Call carries out one call of a tool, once. The arguments fit the schema. An error wraps [ErrNotSent].
func (t *Tool) Call(ctx context.Context, c tools.Call) (tool.Result, error) {
	s, err := t.link.get(ctx)
	if err != nil {
		return tool.Result{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	r := &running{progress: c.Progress, known: t.link.secrets()}
	token, leave := s.enter(r)
	defer leave()
	params := &sdk.CallToolParams{Name: t.remote, Arguments: c.Args}
	params.SetProgressToken(token)
	res, err := request(ctx, s, func(ctx context.Context) (*sdk.CallToolResult, error) { return s.sdk.CallTool(ctx, params) })
	if err != nil {
		out, err := t.link.failure(ctx, err)
		return t.link.label(out, r), err
	}
	return t.link.label(t.link.content(ctx, c, res), r), nil
}

// sending is an error of a request, and whether the server may have received it.
type sending struct {
	error
	reached bool
}

func (e sending) Unwrap() error { return e.error }

// request makes a request, and gives up when the connection ends. Its errors are of type sending.
func request[R any](ctx context.Context, s *session, f func(context.Context) (R, error)) (R, error) {
	var reached atomic.Bool
	reached.Store(s.link.server.URL == "") // whether a pipe was read is not known
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached.Store(true) }})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type answer struct {
		res R
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		res, err := f(ctx)
		answers <- answer{res, err}
	}()
	var a answer
	select {
	case a = <-answers:
	case <-s.ended:
		cancel(sdk.ErrConnectionClosed)
		if a.err = sdk.ErrConnectionClosed; s.why != nil {
			a.err = fmt.Errorf("%w: %v", a.err, s.why) //nolint:errorlint // it is no answer, whatever it wraps
		}
	case <-ctx.Done():
		select {
		case a = <-answers:
		case <-time.After(hangWithin): // a server that does not read blocks its writers
			s.link.drop(s, errors.New("it does not read its input"))
			a.err = ctx.Err()
		}
	}
	switch {
	case a.err == nil:
		return a.res, nil
	case slices.ContainsFunc(connectionEnded, func(e error) bool { return errors.Is(a.err, e) }):
		s.link.drop(s, a.err) // the next call waits for another one
	}
	var none R
	return none, sending{a.err, reached.Load()}
}

// connectionEnded are the errors of requests after which a connection is of no use.
var connectionEnded = []error{
	sdk.ErrConnectionClosed, sdk.ErrSessionMissing, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, os.ErrClosed, syscall.EPIPE,
}

// hangWithin is how long a request may take to end after its context has.
const hangWithin = time.Second

// failure returns the result of a call without an answer: it claims nothing that is not known.
func (l *link) failure(ctx context.Context, err error) (tool.Result, error) {
	said, sent := l.answered(err), sending{}
	errors.As(err, &sent)
	switch {
	case errors.Is(err, sdk.ErrSessionMissing), !sent.reached && ctx.Err() == nil && said == nil:
		return tool.Result{}, fmt.Errorf("%w: the MCP server %s: %s", ErrNotSent, l.name, l.brief(err))
	case !sent.reached && ctx.Err() != nil:
		return tool.Result{}, fmt.Errorf("%w: the MCP server %s was not reached in time", ErrNotSent, l.name)
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return tool.Failure(tool.CodeTimeout, fmt.Sprintf("the MCP server %s did not answer in time", l.name)), nil
	case said != nil:
		return l.refused(said), nil
	}
	return tool.Failure(tool.CodeOutcomeUnknown,
		fmt.Sprintf("it may have run: the MCP server %s gave no answer that can be used: %s", l.name, l.brief(err))), nil
}

// answered returns the error that the server answered with; nil if the error is the client's.
func (l *link) answered(err error) *jsonrpc.Error {
	if l.server.URL == "" { // the connection marks what was said
		marked := saidError{}
		if !errors.As(err, &marked) {
			return nil
		}
		err = marked
	}
	var said *jsonrpc.Error
	if errors.As(err, &said) && !slices.Contains(clientCodes, said.Code) {
		return said
	}
	return nil
}

// clientCodes are those of errors that the library makes itself for requests over HTTP: the connection is
// closing at one end, or the transport has not taken the request.
var clientCodes = []int64{-32003, -32004, -32005}

// refused returns the result of a call that the server answered with an error of the protocol.
func (l *link) refused(said *jsonrpc.Error) tool.Result {
	return tool.Failure(tool.CodeFailed, text.Cut(fmt.Sprintf("the MCP server %s answered with error %d: %s",
		l.name, said.Code, l.secrets().Hide(plain(said.Message))), result.MaxMessage))
}

// label adds what policy must know of the result: whose words it is. Secrets that the server was given are hidden.
func (l *link) label(r tool.Result, call *running) tool.Result {
	if !r.Success && r.Error == nil {
		return r
	}
	r = tools.Labelled(l.hidden(r), []string{"mcp:" + l.name})
	if asked := call.questions(); len(asked) > 0 {
		r.Metadata["declined"] = asked
	}
	return r
}

// hidden returns a result without the secrets that the server was given.
func (l *link) hidden(r tool.Result) tool.Result {
	known := l.secrets()
	r.Data = known.HideJSON(r.Data)
	if r.Error != nil {
		e := *r.Error
		e.Message = known.Hide(e.Message)
		r.Error = &e
	}
	return r
}
