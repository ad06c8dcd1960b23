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

// GenerateFunc asks a language model. The context ends at the call's deadline.
//
// An error that is a [*provider.Error] crosses the bus as it is; that of a context
// that ended, as timeout; any other, as internal. A response with neither text
// nor calls is answered as garbage; IsFinal is filled in. There are no deltas from
// plugins: the contract gives stream subjects to the provider service alone.
type GenerateFunc func(ctx context.Context, call provider.Call) (provider.Response, error)

// Provider adds a language model.
func Provider(info provider.Info, f GenerateFunc) Handler {
	if f == nil {
		return bad("providers", "the handler of %q is nil", clip(info.Name))
	}
	return handlerFunc(func(p *parts) { p.providers = append(p.providers, providerPart{info, f}) })
}

type providerPart struct {
	info     provider.Info
	generate GenerateFunc
}

// generate answers for all providers; first is the one asked when none is named.
func generate(r *room, list []providerPart, first string) answerFunc {
	seen := newMemo()
	return func(ctx context.Context, body []byte, yield func()) ([]byte, error) {
		var call provider.Call
		if err := json.Unmarshal(body, &call); err != nil {
			return nil, bus.Errorf(bus.CodeInvalidArgument, "the question is no call (schemas/provider/call.json): %v", err)
		}
		name := call.Provider
		if name == "" {
			name = first
		}
		i := slices.IndexFunc(list, func(p providerPart) bool { return p.info.Name == name })
		if i < 0 {
			return nil, bus.Errorf(bus.CodeNotFound, "there is no provider %q here", clip(name))
		}
		if call.Plan == "" || call.Attempt == "" {
			return list[i].answer(ctx, r, call)
		}
		// The same plan and attempt is paid for once.
		q := question{key: call.Plan + "\x00" + call.Attempt, yield: yield}
		return seen.do(ctx, q, func() ([]byte, error) { return list[i].answer(ctx, r, call) })
	}
}

func (p providerPart) answer(ctx context.Context, r *room, call provider.Call) ([]byte, error) {
	ctx, cancel := until(ctx, call.Deadline)
	defer cancel()
	response, err := contain(r, "provider "+p.info.Name, func() (provider.Response, error) { return p.generate(ctx, call) })
	if err == nil && response.TextContent == "" && len(response.ToolCalls) == 0 {
		err = &provider.Error{
			Code: provider.ErrGarbage, Message: "the model gave neither text nor a call", Retryable: true,
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

// Guide adds a guide that is always the same.
func Guide(g guide.Guide) Handler {
	if err := g.Check(); err != nil {
		return bad("guides", "%v", err)
	}
	return GuideFunc(g.Name, func(context.Context, guide.Request) (guide.Guide, error) { return g, nil })
}

// GuideFunc adds a guide that is made when it is asked for.
func GuideFunc(name string, f func(ctx context.Context, r guide.Request) (guide.Guide, error)) Handler {
	if f == nil {
		return bad("guides", "the handler of %q is nil", clip(name))
	}
	return handlerFunc(func(p *parts) { p.guides = append(p.guides, guidePart{name, f}) })
}

type guidePart struct {
	name string
	make func(context.Context, guide.Request) (guide.Guide, error)
}

func guides(r *room, list []guidePart) answerFunc {
	return func(ctx context.Context, body []byte, _ func()) ([]byte, error) {
		var req guide.Request
		if err := json.Unmarshal(body, &req); err != nil {
			return nil, bus.Errorf(bus.CodeInvalidArgument, "the question is no request (schemas/guide/request.json): %v", err)
		}
		i := slices.IndexFunc(list, func(g guidePart) bool { return g.name == req.Name })
		if i < 0 {
			return nil, bus.Errorf(bus.CodeNotFound, "there is no guide %q here", clip(req.Name))
		}
		g, err := contain(r, "guide "+req.Name, func() (guide.Guide, error) { return list[i].make(ctx, req) })
		if err != nil {
			return nil, err
		}
		g.Name = req.Name
		if err := g.Check(); err != nil {
			return nil, fmt.Errorf("the guide makes no sense: %w", err)
		}
		return encode(g)
	}
}
