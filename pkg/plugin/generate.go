package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/provider"
)

// GenerateFunc sends a request to a language model. The context ends at the call's deadline.
//
// A [*provider.Error] is returned to the caller unchanged, the error of a context that ended
// as timeout, and any other error as internal. A response with neither text nor calls is
// returned as garbage. IsFinal is filled in. Plugins cannot stream deltas: the protocol
// reserves the stream subjects for the provider service.
type GenerateFunc func(ctx context.Context, call provider.Call) (provider.Response, error)

// Provider adds a language model.
func Provider(info provider.Info, f GenerateFunc) Handler {
	if f == nil {
		return invalid("providers", "the handler for %q is nil", clip(info.Name))
	}
	return handlerFunc(func(p *parts) { p.providers = append(p.providers, providerPart{info, f}) })
}

type providerPart struct {
	info     provider.Info
	generate GenerateFunc
}

// generate answers for all providers; first is the default if a call names none.
func generate(r *runtime, list []providerPart, first string) answerFunc {
	seen := newMemo()
	return func(ctx context.Context, body []byte, yield func()) ([]byte, error) {
		var call provider.Call
		if err := json.Unmarshal(body, &call); err != nil {
			return nil, bus.Errorf(bus.CodeInvalidArgument,
				"the request is not a provider call (schemas/provider/call.json): %v", err)
		}
		name := call.Provider
		if name == "" {
			name = first
		}
		i := slices.IndexFunc(list, func(p providerPart) bool { return p.info.Name == name })
		if i < 0 {
			return nil, bus.Errorf(bus.CodeNotFound, "unknown provider %q", clip(name))
		}
		if call.Plan == "" || call.Attempt == "" {
			return list[i].answer(ctx, r, call)
		}
		// The same plan and attempt is generated, and paid for, once.
		q := question{key: call.Plan + "\x00" + call.Attempt, yield: yield}
		return seen.do(ctx, q, func() ([]byte, error) { return list[i].answer(ctx, r, call) })
	}
}

func (p providerPart) answer(ctx context.Context, r *runtime, call provider.Call) ([]byte, error) {
	ctx, cancel := withDeadline(ctx, call.Deadline)
	defer cancel()
	response, err := contain(r, "provider "+p.info.Name,
		func() (provider.Response, error) { return p.generate(ctx, call) })
	if err == nil && response.TextContent == "" && len(response.ToolCalls) == 0 {
		err = &provider.Error{
			Code: provider.ErrGarbage, Message: "the model returned neither text nor a call", Retryable: true,
		}
	}
	if err != nil {
		return encode(provider.Reply{Error: providerError(ctx, err)})
	}
	response.IsFinal = len(response.ToolCalls) == 0
	return encode(provider.Reply{Response: &response})
}

func providerError(ctx context.Context, err error) *provider.Error {
	var known *provider.Error
	switch {
	case errors.As(err, &known):
		return known
	case ctx.Err() != nil:
		return &provider.Error{Code: provider.ErrTimeout, Message: err.Error(), Retryable: true}
	}
	return &provider.Error{Code: provider.ErrInternal, Message: err.Error()}
}

// Guide adds a constant guide.
func Guide(g guide.Guide) Handler {
	if err := g.Check(); err != nil {
		return invalid("guides", "%v", err)
	}
	return GuideFunc(g.Name, func(context.Context, guide.Request) (guide.Guide, error) { return g, nil })
}

// GuideFunc adds a guide that f returns for each request. Its Name becomes name.
func GuideFunc(name string, f func(ctx context.Context, r guide.Request) (guide.Guide, error)) Handler {
	if f == nil {
		return invalid("guides", "the handler for %q is nil", clip(name))
	}
	return handlerFunc(func(p *parts) { p.guides = append(p.guides, guidePart{name, f}) })
}

type guidePart struct {
	name string
	make func(context.Context, guide.Request) (guide.Guide, error)
}

func guides(r *runtime, list []guidePart) answerFunc {
	return func(ctx context.Context, body []byte, _ func()) ([]byte, error) {
		var req guide.Request
		if err := json.Unmarshal(body, &req); err != nil {
			return nil, bus.Errorf(bus.CodeInvalidArgument,
				"the request is not a guide request (schemas/guide/request.json): %v", err)
		}
		i := slices.IndexFunc(list, func(g guidePart) bool { return g.name == req.Name })
		if i < 0 {
			return nil, bus.Errorf(bus.CodeNotFound, "unknown guide %q", clip(req.Name))
		}
		g, err := contain(r, "guide "+req.Name, func() (guide.Guide, error) { return list[i].make(ctx, req) })
		if err != nil {
			return nil, err
		}
		g.Name = req.Name
		if err := g.Check(); err != nil {
			return nil, fmt.Errorf("invalid guide: %w", err)
		}
		return encode(g)
	}
}
