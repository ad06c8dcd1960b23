package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/plugincall"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/budget"
	"skandha.dev/services/provider/embedding"
	"skandha.dev/services/provider/retry"
	"skandha.dev/services/provider/speech"
)

// Deps are the service's dependencies.
type Deps struct {
	Bus    *journal.Journal
	Logger *slog.Logger // default slog.Default
	// Plugins is the registry, if the process already follows it; default: the
	// service follows it itself.
	Plugins  plugincall.Plugins
	Embedder *embedding.Embedder // nil: none

	Transcriber *speech.Transcriber // nil: none
	Speaker     *speech.Speaker     // nil: none
}

// Run selects adapters, the embedder, the transcriber and the speaker by configuration and
// environment, logs the choice, and serves them until ctx ends; see [Select], [Deps.Select] and [Serve].
func Run(ctx context.Context, cfg Config, deps Deps) error {
	adapters, why, err := Select(ctx, cfg, os.Getenv)
	if err != nil {
		return err
	}
	deps.Logger = cmp.Or(deps.Logger, slog.Default())
	deps.Logger.Info("provider: " + why)
	if err := deps.Select(cfg, os.Getenv); err != nil {
		return err
	}
	return Serve(ctx, cfg, adapters, deps)
}

// Select chooses the embedder, the transcriber and the speaker by configuration and environment, and
// logs the choice.
func (d *Deps) Select(cfg Config, getenv func(string) string) (err error) {
	d.Logger = cmp.Or(d.Logger, slog.Default())
	var why string
	if d.Embedder, why, err = SelectEmbedder(cfg, getenv); err != nil {
		return err
	}
	d.Logger.Info("embedder: " + why)
	if d.Transcriber, why, err = SelectTranscriber(cfg, getenv); err != nil {
		return err
	}
	d.Logger.Info("transcriber: " + why)
	if d.Speaker, why, err = SelectSpeaker(cfg, getenv); err != nil {
		return err
	}
	d.Logger.Info("speaker: " + why)
	return nil
}

// Serve answers requests with the adapters, the first of which is the default,
// and with the plugins that are providers, until ctx ends; then it drains.
func Serve(ctx context.Context, cfg Config, adapters []Adapter, deps Deps) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("configuring the provider: %w", err)
	}
	if deps.Bus == nil || len(adapters) == 0 {
		return errors.New("configuring the provider: Bus and at least one adapter are required")
	}
	deps.Logger = cmp.Or(deps.Logger, slog.Default())
	s := &service{
		cfg: cfg.withDefaults(), adapters: adapters, embedder: deps.Embedder, transcriber: deps.Transcriber,
		speaker: deps.Speaker, bus: deps.Bus, log: deps.Logger,
	}
	s.ledger = budget.NewLedger(s.cfg.Budget, deps.Bus, deps.Logger)
	var offer engine.Offer
	for _, a := range adapters {
		offer.Providers = append(offer.Providers, a.Info())
	}
	ec := engine.Config{
		Kind: subject.Provider, Service: "provider", Offer: offer, Work: s.work,
		Pools:        []executor.Pool{{Name: executor.DefaultPool, Slots: s.cfg.Slots}},
		DrainTimeout: s.cfg.DrainTimeout, Logger: deps.Logger,
	}
	if !cfg.NoPlugins {
		leave, err := s.follow(deps, offer.Providers)
		if err != nil {
			return fmt.Errorf("starting the provider: %w", err)
		}
		defer leave()
		ec.Updates = s.remote.offers.Updates()
	}
	reports, err := s.report()
	if err != nil {
		return fmt.Errorf("starting the provider: %w", err)
	}
	defer reports.Stop()
	leave, err := s.embeds()
	if err != nil {
		return fmt.Errorf("starting the provider: %w", err)
	}
	defer leave()
	quiet, err := s.hearsAndSpeaks()
	if err != nil {
		return fmt.Errorf("starting the provider: %w", err)
	}
	defer quiet()
	return engine.Serve(ctx, deps.Bus, ec)
}

type service struct {
	cfg      Config
	remote   *remotes          // nil without plugins
	plugins  *plugincall.Asker // likewise
	adapters []Adapter
	embedder *embedding.Embedder // nil: none
	embedded tally

	transcriber *speech.Transcriber // nil: none
	speaker     *speech.Speaker     // nil: none

	ledger *budget.Ledger // nil without a budget
	bus    *journal.Journal
	log    *slog.Logger
}

// work is one attempt at one plan.
func (s *service) work(ctx context.Context, req executor.Request, _ func(string)) executor.Answer {
	began := time.Now()
	resp, spent, failure := s.generate(ctx, req)
	log := s.log.With("plan", req.Call, "attempt", req.Attempt, "agent", string(req.Agent), "session", string(req.Session),
		"took", time.Since(began))
	if failure != nil {
		if ctx.Err() == nil {
			log.WarnContext(ctx, "the model did not answer", "code", string(failure.Code), "reason", failure.Message)
		}
		return executor.Answer{Error: failure, Spent: spent}
	}
	log.DebugContext(ctx, "the model answered", "calls", len(resp.ToolCalls), "model", resp.Model,
		"input_tokens", resp.Usage.InputTokens, "output_tokens", resp.Usage.OutputTokens)
	return executor.Answer{Response: &resp}
}

// generate asks the adapter or the plugin, and checks the answer against the contract in
// any case. With a failure it returns what it cost all the same.
func (s *service) generate(
	ctx context.Context, req executor.Request,
) (resp contract.Response, spent contract.Usage, failure *contract.Error) {
	switch {
	case req.Model == nil:
		return resp, spent, adapter.Errorf(contract.ErrBadRequest, "model is missing in the request")
	case !subject.Valid(req.Agent) || !subject.Valid(req.Session):
		// The subject of deltas is made of them.
		return resp, spent, adapter.Errorf(contract.ErrBadRequest, "agent or session is not a valid id")
	}
	resp, spent, failure = s.asked(ctx, req)
	if failure != nil {
		return contract.Response{}, spent, failure
	}
	if wrong := s.cfg.Limits.Check(resp); wrong != nil {
		return contract.Response{}, resp.Usage, wrong
	}
	resp.IsFinal = len(resp.ToolCalls) == 0
	return resp, contract.Usage{}, nil
}

// asked sends the request, with the content of its files, to the adapter or the plugin. What it
// may cost is held back before.
func (s *service) asked(
	ctx context.Context, req executor.Request,
) (resp contract.Response, spent contract.Usage, failure *contract.Error) {
	a, ref := s.adapter(req.Provider), subject.Ref{Agent: req.Agent, Session: req.Session}
	var info contract.Info
	most := maxFilesBytes
	if a != nil {
		info = a.Info()
	} else {
		p, ok := s.remote.get(req.Provider)
		if !ok { // it was offered when the request arrived
			return resp, spent, adapter.Errorf(contract.ErrUnavailable, "provider %q is not available", req.Provider)
		}
		info, most = p.info, maxPluginFiles
	}
	question := *req.Model
	if failure := s.attach(ctx, ref, &question, most); failure != nil {
		return resp, spent, failure
	}
	held, failure := s.hold(ctx, info, a != nil, &question)
	if failure != nil {
		return resp, spent, failure
	}
	req.Model = &question
	if a != nil {
		ctx = adapter.WithBegan(retry.WithGate(ctx, held.again(ctx)), &held.begun)
		resp, failure = s.askAdapter(ctx, a, ref, req)
	} else {
		var asked bool
		resp, asked, failure = s.askPlugin(ctx, req, held.worst == 0)
		held.begun.Store(asked)
	}
	if failure != nil {
		held.failed(failure)
		return resp, held.spent, failure
	}
	held.paid(&resp.Usage)
	return resp, spent, nil
}

// askAdapter asks the adapter and streams what it writes.
func (s *service) askAdapter(
	ctx context.Context, a Adapter, ref subject.Ref, req executor.Request,
) (contract.Response, *contract.Error) {
	ctx, cancel := context.WithCancelCause(retry.WithQuestion(ctx, req.Call))
	defer cancel(nil)
	out := newStream(s.cfg.FlushEvery, s.cfg.Limits.TextBytes, s.publisher(ctx, ref, req))
	resp, err := s.ask(ctx, a, *req.Model, func(text, reasoning string) {
		adapter.Began(ctx)
		if !out.add(text, reasoning) {
			cancel(s.cfg.Limits.TextTooLong())
		}
	})
	out.close()

	if tooLong, ok := errors.AsType[*contract.Error](context.Cause(ctx)); ok {
		return resp, tooLong
	}
	return resp, adapter.Failure(err)
}

// ask turns a panic of the adapter into an error.
func (s *service) ask(
	ctx context.Context, a Adapter, req contract.Request, delta func(text, reasoning string),
) (resp contract.Response, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.log.ErrorContext(ctx, "an adapter panicked", "provider", a.Info().Name, "panic", v, "stack", string(debug.Stack()))
			err = adapter.Errorf(contract.ErrInternal, "the adapter %s panicked", a.Info().Name)
		}
	}()
	return a.Generate(ctx, req, delta)
}

// adapter returns the named adapter, or the first one if name is empty; nil if there is none.
func (s *service) adapter(name string) Adapter {
	for _, a := range s.adapters {
		if name == "" || a.Info().Name == name {
			return a
		}
	}
	return nil
}
