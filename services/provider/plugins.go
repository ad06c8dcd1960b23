package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/plugincall"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/provider/adapter"
)

const (
	// maxPlugins bounds the providers of plugins that are announced.
	maxPlugins = 256
	// maxInfo bounds a plugin's description of one of its providers, in bytes.
	maxInfo = 1 << 10
	// maxReason bounds the message of a plugin's error, in bytes.
	maxReason = 4 << 10
)

// remote is a provider that a plugin offers.
type remote struct {
	plugin subject.Plugin
	hash   string // of the manifest that declares it
	info   contract.Info
}

// remotes are the providers of the active plugins. Only refresh changes
// them, and it is called by one goroutine at a time.
type remotes struct {
	own    []contract.Info // the adapters, which come first and take precedence
	offers *engine.Offers
	log    *slog.Logger

	warned map[string]bool
	list   atomic.Pointer[[]remote]
}

// follow offers the plugins' providers from now on.
func (s *service) follow(deps Deps, own []contract.Info) (leave func(), err error) {
	s.remote = &remotes{own: own, offers: engine.NewOffers(), log: deps.Logger}
	s.remote.list.Store(&[]remote{})
	s.plugins, leave, err = plugincall.Follow(
		deps.Bus, deps.Plugins, s.remote.refresh, deps.Logger, plugincall.Grace(s.cfg.PluginGrace))
	return leave, err
}

// refresh offers the providers of the snapshot's plugins, in their order.
func (r *remotes) refresh(s *registry.Snapshot) {
	var list []remote
	offered, warned := slices.Clone(r.own), map[string]bool{}
	for _, p := range s.Plugins() {
		if p.State != plugin.Active {
			continue
		}
		for _, info := range p.Manifest.Providers {
			why := ""
			switch {
			case info.Name == "" || len(info.Name)+len(info.Model)+len(info.Note) > maxInfo:
				why = fmt.Sprintf("its name is empty, or its description is longer than %d bytes", maxInfo)
			case slices.ContainsFunc(offered, func(o contract.Info) bool { return o.Name == info.Name }):
				why = "the name is taken"
			case len(list) >= maxPlugins:
				why = fmt.Sprintf("the limit of %d is reached", maxPlugins)
			}
			if why == "" {
				list, offered = append(list, remote{p.Name(), p.Hash, info}), append(offered, info)
				continue
			}
			key := p.Hash + " " + info.Name + " " + why
			if warned[key] = true; !r.warned[key] {
				r.log.Warn("not offering a plugin's provider", "plugin", string(p.Name()), "provider",
					text.Cut(info.Name, maxReason), "why", why)
			}
		}
	}
	r.warned = warned
	if old := r.list.Swap(&list); !slices.Equal(*old, list) {
		r.offers.Put(engine.Offer{Providers: offered})
	}
}

func (r *remotes) get(name string) (remote, bool) {
	if r != nil {
		for _, p := range *r.list.Load() {
			if p.info.Name == name {
				return p, true
			}
		}
	}
	return remote{}, false
}

// askPlugin sends the request to the plugin that offers the provider. It reports whether the
// plugin may have asked its model. A request that is not repeatable is sent to one replica, once.
func (s *service) askPlugin(
	ctx context.Context, req executor.Request, repeatable bool,
) (resp contract.Response, asked bool, failure *contract.Error) {
	p, ok := s.remote.get(req.Provider)
	if !ok { // it was offered when the request arrived
		return resp, false, adapter.Errorf(contract.ErrUnavailable, "provider %q is not available", req.Provider)
	}
	deadline, _ := ctx.Deadline() // the executor's work always has one
	body, err := json.Marshal(contract.Call{
		Plan: req.Call, Attempt: req.Attempt, Agent: req.Agent, Session: req.Session,
		Provider: p.info.Name, Deadline: deadline.UTC(), Request: *req.Model,
	})
	if err != nil {
		return resp, false, adapter.Errorf(contract.ErrBadRequest, "encoding the request: %v", err)
	}
	reply, err := s.plugins.Ask(ctx, plugincall.Request{
		Plugin: p.plugin, Hash: p.hash, Subject: subject.Generate(p.plugin), Body: body, Replicas: true, Repeatable: repeatable,
	})
	if err != nil {
		return resp, !errors.Is(err, plugincall.ErrNotAsked), unanswered(p.plugin, err)
	}
	resp, failure = readReply(p.plugin, reply)
	return resp, failure == nil || !unbilled(failure.Code), failure
}

// unbilled reports whether a plugin's own failure means that its model did no work.
func unbilled(c contract.ErrorCode) bool {
	switch c {
	case contract.ErrAuth, contract.ErrBadRequest, contract.ErrRateLimited, contract.ErrOverBudget:
		return true
	}
	return false
}

// unanswered returns the failure of a request that got no reply.
func unanswered(p subject.Plugin, err error) *contract.Error {
	var said *bus.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return adapter.Errorf(contract.ErrTimeout, "plugin %s did not answer in time", p)
	case errors.Is(err, context.Canceled):
		return adapter.Failure(err)
	case errors.Is(err, plugincall.ErrNotAsked) && errors.Is(err, bus.ErrTooLarge):
		return adapter.Errorf(contract.ErrTooLong, "%v", err)
	case errors.Is(err, plugincall.ErrUnreadable) && errors.Is(err, bus.ErrTooLarge):
		return adapter.Errorf(contract.ErrTooLong, "%v", err)
	case errors.Is(err, plugincall.ErrUnreadable):
		return adapter.Errorf(contract.ErrGarbage, "%v", err)
	case errors.Is(err, plugincall.ErrNotAsked), errors.Is(err, plugincall.ErrLost):
		return adapter.Errorf(contract.ErrUnavailable, "%v", err)
	case errors.As(err, &said):
		return adapter.Errorf(codeOf(said.Code), "plugin %s answered with the error %s: %s", p, said.Code,
			text.Cut(said.Message, maxReason))
	}
	return adapter.Errorf(contract.ErrInternal, "asking plugin %s: %v", p, err)
}

// codeOf translates the code of an error reply.
func codeOf(c bus.Code) contract.ErrorCode {
	switch c {
	case bus.CodeInvalidArgument, bus.CodeNotFound, bus.CodeDenied:
		return contract.ErrBadRequest
	case bus.CodeUnavailable, bus.CodeConflict, bus.CodeCancelled:
		return contract.ErrUnavailable
	case bus.CodeTimeout:
		return contract.ErrTimeout
	case bus.CodeTooLarge:
		return contract.ErrTooLong
	case bus.CodeInternal:
	}
	return contract.ErrInternal
}

// readReply reads what a plugin answered; the response in it is checked like an
// adapter's.
func readReply(p subject.Plugin, body []byte) (contract.Response, *contract.Error) {
	var r contract.Reply
	garbage := func(err error) (contract.Response, *contract.Error) {
		return contract.Response{}, adapter.Errorf(contract.ErrGarbage,
			"plugin %s did not send a valid provider reply (schemas/provider/answer.json): %v", p, err)
	}
	body = bytes.ToValidUTF8(body, []byte("\uFFFD")) // invalid UTF-8 can occur only inside strings
	var err error
	if isBare(body) {
		r.Response = &contract.Response{}
		err = strictjson.Decode(body, r.Response)
	} else {
		err = strictjson.Decode(body, &r)
	}
	switch {
	case err != nil:
		return garbage(err)
	case (r.Response == nil) == (r.Error == nil):
		return garbage(errors.New(`want one of "response" and "error"`))
	case r.Error != nil:
		return contract.Response{}, readError(p, *r.Error)
	case !r.Response.Usage.Plausible():
		return garbage(errors.New(`"response.usage" holds a negative number, or one above 10^15`))
	}
	return *r.Response, nil
}

// isBare reports whether the answer is the specification's: a response without a reply around it.
func isBare(body []byte) bool {
	var w struct {
		Response json.RawMessage `json:"response"`
		Error    json.RawMessage `json:"error"`
		IsFinal  json.RawMessage `json:"is_final"`
	}
	return json.Unmarshal(body, &w) == nil && w.IsFinal != nil && w.Response == nil && w.Error == nil
}

// readError returns a plugin's own failure, limited to valid codes and lengths.
func readError(p subject.Plugin, e contract.Error) *contract.Error {
	switch e.Code {
	case contract.ErrAuth, contract.ErrRateLimited, contract.ErrUnavailable, contract.ErrTimeout,
		contract.ErrBadRequest, contract.ErrGarbage, contract.ErrTooLong, contract.ErrInternal, contract.ErrOverBudget:
	default:
		return adapter.Errorf(contract.ErrInternal, "plugin %s failed with the unknown code %q: %s", p,
			text.Cut(string(e.Code), maxReason),
			text.Cut(e.Message, maxReason))
	}
	e.Message, e.RetryInMS = text.Cut(e.Message, maxReason), max(e.RetryInMS, 0)
	if e.Message == "" {
		e.Message = fmt.Sprintf("plugin %s gave no reason", p)
	}
	return &e
}
