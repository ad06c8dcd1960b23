package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/uibridge/contract"
)

const instructions = "Skandha runs AI agents whose sessions are durable. `ask` gives an agent an input and returns " +
	"its answer; name a session to continue it. A tool call of the agent may need the approval of a person: if the " +
	"client can ask its user, it is asked, and else the result says what waits, and `wait` continues. The tools that the " +
	"agent uses (`list_tools`) cannot be called directly: ask the agent, so that its policy decides about each call."

// newServer creates the server of one era of the protocol.
func (d *Handler) newServer(newEra bool) *sdk.Server {
	caps := &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}}
	if newEra {
		caps.AddExtension(tasks, nil)
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "skandha", Title: "Skandha", Version: d.deps.Version}, &sdk.ServerOptions{
		Instructions: instructions, Logger: d.sdkLog(), Capabilities: caps,
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
	})
	d.addTools(s)
	addTemplates(s, d)
	if newEra {
		d.addTasks(s)
	}
	if d.more != nil {
		d.more(s)
	}
	s.AddReceivingMiddleware(d.receive)
	return s
}

// caller is the sender of a message, and the request that carried it.
type caller struct {
	*connection
	handling context.Context //nolint:containedctx // ends with a cancel by the client or with its session
	task     *task           // the result, if a tool has created a task
}

type callerKey struct{}

func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// receive gives handlers the caller, and a context that ends with the HTTP request, too.
func (d *Handler) receive(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		extra := req.GetExtra()
		if extra == nil || extra.TokenInfo == nil {
			return nil, errors.New("a message without a principal")
		}
		conn, ok := extra.TokenInfo.Extra[connectionOf].(*connection)
		if !ok {
			return nil, errors.New("a message without a principal")
		}
		if !offered(method) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + method}
		}
		conn.out.streams()
		c := &caller{connection: conn}
		handling, endAll := context.WithCancelCause(ctx)
		defer endAll(nil)
		defer conn.client.enter(req.GetSession().ID(), &endAll)()
		c.handling = handling
		ctx, end := context.WithCancelCause(context.WithValue(handling, callerKey{}, c))
		defer end(nil)
		defer context.AfterFunc(conn.http, func() { end(context.Cause(conn.http)) })()
		switch req := req.(type) {
		case *sdk.ListResourcesRequest:
			if d.more == nil {
				return d.listResources(ctx, c, req)
			}
		case *sdk.CallToolRequest:
			res, err := next(ctx, method, req)
			if err == nil && c.task != nil {
				return c.task, nil
			}
			return res, err
		}
		return next(ctx, method, req)
	}
}

// offered reports whether the server has what a method is for. The library answers the others, too.
func offered(method string) bool {
	kind, _, _ := strings.Cut(method, "/")
	return kind != "prompts" && kind != "completion" && kind != "logging"
}

// cancelled reports whether the client does not want the result any more. In the sessions of the
// earlier era a lost connection does not say so: only the cancel does that may follow it.
func (c *caller) cancelled(linger time.Duration) bool {
	if ours(c.http) {
		return false // the bridge stops, or the token has expired
	}
	if c.handling.Err() == nil && !c.stateless {
		wait := time.NewTimer(linger)
		defer wait.Stop()
		select {
		case <-c.handling.Done():
		case <-wait.C:
			return false
		}
	}
	return !ours(c.handling) // else the session was ended
}

// ours reports whether a context has ended for a reason of this bridge.
func ours(ctx context.Context) bool {
	_, is := errors.AsType[*contract.Error](context.Cause(ctx))
	return is
}

// call calls a method of the backend, and decodes its result.
func call[A any](ctx context.Context, d *Handler, c *caller, name string, params any) (a A, err error) {
	m, ok := d.deps.Backend.Methods()[name]
	if !ok {
		return a, fmt.Errorf("the backend has no method %s", name)
	}
	if err := c.p.Require(m.Right, ""); err != nil {
		return a, err
	}
	in, err := json.Marshal(params)
	if err != nil {
		return a, err
	}
	result, err := m.Call(ctx, c.p, in)
	if err != nil {
		return a, err
	}
	out, err := json.Marshal(result)
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	return a, err
}

// seen returns err as the client sees it, as the error of a tool.
func (d *Handler) seen(err error) error {
	e := contract.ErrorOf(err)
	if e.Code == contract.CodeInternal {
		d.log.Error("request failed", "error", err)
	}
	d.failed.Add(1)
	return fmt.Errorf("%s: %w", e.Code, e)
}

// wire returns err as an error of JSON-RPC, whose data has the error's code.
func (d *Handler) wire(err error) error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e
	}
	e := contract.ErrorOf(err)
	code := int64(jsonrpc.CodeInternalError)
	switch e.Code {
	case contract.CodeInvalid, contract.CodeNotFound, contract.CodeForbidden, contract.CodeTooLarge:
		code = jsonrpc.CodeInvalidParams
	case contract.CodeInternal:
		d.log.Error("request failed", "error", err)
	}
	d.failed.Add(1)
	data, _ := json.Marshal(e) // of plain fields, so it never fails
	return &jsonrpc.Error{Code: code, Message: e.Error(), Data: data}
}

// hidden reports whether an error says that something does not exist, or that the principal may not
// see it: clients cannot tell these apart.
func hidden(err error) bool {
	e, ok := errors.AsType[*contract.Error](err)
	return ok && (e.Code == contract.CodeNotFound || e.Code == contract.CodeForbidden || e.Code == contract.CodeInvalid)
}
