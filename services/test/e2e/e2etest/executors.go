package e2etest

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"time"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
)

// The tools of a runner. Each appends one line to the file of effects per effect.
const (
	ToolOnce  = "e2e:once"  // not idempotent
	ToolAgain = "e2e:again" // idempotent
	ToolRisky = "e2e:risky" // not idempotent; a person is asked first
)

// Args are the arguments of every tool.
type Args struct {
	N  int `json:"n"`            // comes back in the result
	MS int `json:"ms,omitempty"` // how long it takes
	// the effect happens at the end, unless it is stopped before; else at the beginning
	AtEnd  bool `json:"at_end,omitempty"`
	Deaf   bool `json:"deaf,omitempty"`  // it does not heed that it is stopped
	Fail   bool `json:"fail,omitempty"`  // it fails after its effect
	Big    int  `json:"big,omitempty"`   // bytes of the result
	PanicQ bool `json:"panic,omitempty"` // it panics after its effect
	// Hold names what it waits for instead of MS: that the test says so, by
	// [System.Release].
	Hold string `json:"hold,omitempty"`
}

const argsSchema = `{"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer"},"ms":{"type":"integer"},
"at_end":{"type":"boolean"},"deaf":{"type":"boolean"},"fail":{"type":"boolean"},"big":{"type":"integer"},"panic":{"type":"boolean"},"hold":{"type":"string"}}}`

// Specs describes the tools.
func Specs() []tool.Spec {
	schema := json.RawMessage(argsSchema)
	return []tool.Spec{
		{Name: ToolOnce, Description: "has an effect", Args: schema},
		{Name: ToolAgain, Description: "has an effect that may be repeated", Args: schema, Idempotent: true},
		{Name: ToolRisky, Description: "has an effect that cannot be taken back", Args: schema, Risk: tool.RiskHigh},
	}
}

func (r Role) runner(ctx context.Context, b *journal.Journal, log *slog.Logger) error {
	return engine.Serve(ctx, b, engine.Config{
		Kind: subject.Runner, Service: "e2e", Offer: engine.Offer{Tools: Specs()}, Pools: r.pools(),
		DrainTimeout: r.Drain, Logger: log, Work: Tools(r.Effects, b.Instance()),
	})
}

// Tools is the work of a runner.
func Tools(effects string, self subject.Instance) engine.Work {
	return func(ctx context.Context, q contract.Request, progress func(string)) contract.Answer {
		var a Args
		if err := json.Unmarshal(q.Tool.Args, &a); err != nil {
			return result(tool.Failure(tool.CodeFailed, err.Error()))
		}
		e := Effect{
			Call: q.Call, Attempt: q.Attempt, Runner: string(self), Tool: q.Tool.Name, Session: string(q.Session),
			At: time.Now(),
		}
		if !a.AtEnd {
			if err := e.append(effects); err != nil {
				panic(err) // a result without its effect would be a lie of this test
			}
		}
		progress("working")
		if stopped := pass(ctx, a, effects); stopped {
			return result(tool.Failure(tool.CodeFailed, "it was stopped"))
		}
		if a.AtEnd {
			if err := e.append(effects); err != nil {
				panic(err)
			}
		}
		switch {
		case a.PanicQ:
			panic("as scripted")
		case a.Fail:
			return result(tool.Failure(tool.CodeFailed, "as scripted"))
		}
		return result(tool.OK(map[string]any{"n": a.N, "filler": strings.Repeat("x", a.Big)}))
	}
}

// pass lets the time go by and reports whether the call was stopped meanwhile.
func pass(ctx context.Context, a Args, effects string) (stopped bool) {
	if a.Hold != "" {
		return hold(ctx, effects+"."+a.Hold, a.Deaf)
	}
	t := time.NewTimer(time.Duration(a.MS) * time.Millisecond)
	defer t.Stop()
	if a.Deaf {
		<-t.C
		return false
	}
	select {
	case <-t.C:
		return ctx.Err() != nil
	case <-ctx.Done():
		return true
	}
}

// hold waits until the file is there; beside it another one says that it does.
func hold(ctx context.Context, file string, deaf bool) (stopped bool) {
	if err := os.WriteFile(file+".held", nil, 0o600); err != nil {
		panic(err)
	}
	end := ctx.Done()
	if deaf {
		end = nil
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(file); err == nil {
			return ctx.Err() != nil && !deaf
		}
		select {
		case <-tick.C:
		case <-end:
			return true
		}
	}
}

// AwaitHeld waits until a tool holds, as [Args.Hold] says.
func (s *System) AwaitHeld(name string) {
	s.T.Helper()
	Eventually(s.T, "a tool holds for "+name, func() bool {
		_, err := os.Stat(s.Effects + "." + name + ".held")
		return err == nil
	})
}

// Release lets the tools go on that hold, and all that would.
func (s *System) Release(name string) {
	s.T.Helper()
	if err := os.WriteFile(s.Effects+"."+name, nil, 0o600); err != nil {
		s.T.Fatal(err)
	}
}

func result(r tool.Result) contract.Answer {
	return contract.Answer{State: contract.Finished, Result: &r}
}

func (r Role) pools() []contract.Pool {
	slots := r.Slots
	if slots == 0 {
		slots = 64
	}
	return []contract.Pool{{Name: contract.DefaultPool, Slots: slots}}
}

func (r Role) provider(ctx context.Context, b *journal.Journal, log *slog.Logger) error {
	return engine.Serve(ctx, b, engine.Config{
		Kind: subject.Provider, Service: "e2e",
		Offer: engine.Offer{Providers: []provider.Info{{Name: "script", Model: "script"}}},
		Pools: r.pools(), DrainTimeout: r.Drain, Logger: log, Work: Model,
	})
}

// Model is the work of a provider.
func Model(ctx context.Context, q contract.Request, _ func(string)) contract.Answer {
	res, s, err := answer(*q.Model)
	if err != nil {
		return contract.Answer{
			State: contract.Finished, Error: &provider.Error{Code: provider.ErrBadRequest, Message: err.Error()},
		}
	}
	select {
	case <-time.After(time.Duration(s.ThinkMS) * time.Millisecond):
	case <-ctx.Done():
		return contract.Answer{
			State: contract.Finished,
			Error: &provider.Error{Code: provider.ErrTimeout, Message: "it was stopped", Retryable: true},
		}
	}
	if len(res.ToolCalls) == 0 {
		switch s.Then {
		case Hang:
			time.Sleep(time.Hour)
		case Panic:
			panic("as scripted")
		case Fault:
			return contract.Answer{
				State: contract.Finished,
				Error: &provider.Error{Code: provider.ErrUnavailable, Message: "as scripted", Retryable: true},
			}
		}
	}
	return contract.Answer{State: contract.Finished, Response: &res}
}
