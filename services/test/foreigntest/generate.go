package foreigntest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/test/natstest"
)

// Generate has the provider service put a question to one of its providers, which
// may be a plugin's, as core does, and returns the final answer. The plan must be
// new each time.
func (s *System) Generate(name, plan string, messages ...provider.Message) executor.Answer {
	s.t.Helper()
	var req provider.Request
	for _, m := range messages {
		raw, err := json.Marshal(m)
		if err != nil {
			s.t.Fatal(err)
		}
		req.Messages = append(req.Messages, raw)
	}
	p := s.asker(name)
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	defer cancel()
	final, err := p.ask(ctx, plan, req)
	if err != nil {
		s.t.Fatalf("asking provider %s: %v", name, err)
	}
	return final
}

// Adapter returns one of the providers, which may be a plugin's, as an adapter without
// deltas: it has the provider service ask, over the bus, as core does.
func (s *System) Adapter(name string) adapter.Adapter {
	s.t.Helper()
	return s.asker(name)
}

// asker asks a provider through the instance of the provider service that offers it.
type asker struct {
	caller *bus.Caller
	at     subject.Instance
	info   provider.Info
	plans  atomic.Int64
}

// asker waits until an instance of the provider service offers the provider.
func (s *System) asker(name string) *asker {
	s.t.Helper()
	b, err := s.Connect(natstest.Context(s.t), "generate")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(b.Close)
	caller, err := b.NewCaller()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &asker{caller: caller}
	natstest.Eventually(s.t, "the provider "+name+" is offered", func() bool {
		var st coreapi.Status
		if err := s.Client.Ask(natstest.Context(s.t), coreapi.VerbStatus, nil, &st); err != nil {
			s.t.Fatal(err)
		}
		for _, e := range st.Executors {
			if i := slices.IndexFunc(e.Providers, func(i provider.Info) bool { return i.Name == name }); i >= 0 {
				p.at, p.info = e.Instance, e.Providers[i]
			}
		}
		return p.at != ""
	})
	return p
}

// Info implements adapter.Adapter.
func (p *asker) Info() provider.Info { return p.info }

// Generate implements adapter.Adapter.
func (p *asker) Generate(
	ctx context.Context, req provider.Request, _ func(text, reasoning string),
) (provider.Response, error) {
	final, err := p.ask(ctx, "t1-p"+strconv.FormatInt(p.plans.Add(1), 10), req)
	switch {
	case err != nil:
		return provider.Response{}, err
	case final.Error != nil:
		return provider.Response{}, final.Error
	case final.Response == nil:
		return provider.Response{}, fmt.Errorf("the attempt is %s: %s %s", final.State, final.Reason, final.Message)
	}
	return *final.Response, nil
}

// ask returns the final answer. It stops the attempt when ctx ends.
func (p *asker) ask(ctx context.Context, plan string, model provider.Request) (executor.Answer, error) {
	if err := ctx.Err(); err != nil {
		return executor.Answer{}, err
	}
	by, has := ctx.Deadline()
	if !has {
		by = time.Now().Add(natstest.Patience)
	}
	answers := make(chan reply, 1)
	forget, err := p.send(ctx, executor.Request{
		Op: executor.OpRun, Agent: "main", Session: "generate", Call: plan, Attempt: "a1", Provider: p.info.Name,
		StartBy: by, NotAfter: by, Model: &model,
	}, answers)
	if err != nil {
		return executor.Answer{}, err
	}
	defer forget()
	select {
	case r := <-answers:
		return r.final, r.err
	case <-ctx.Done():
		stop := executor.Request{Op: executor.OpStop, Agent: "main", Session: "generate", Call: plan, Attempt: "a1"}
		if forget, err := p.send(context.WithoutCancel(ctx), stop, answers); err == nil {
			forget()
		}
		return executor.Answer{}, ctx.Err()
	}
}

// reply is the final answer, or why there is none.
type reply struct {
	final executor.Answer
	err   error
}

// send sends a request. The channel gets the first final reply.
func (p *asker) send(ctx context.Context, req executor.Request, answers chan<- reply) (forget func(), err error) {
	body, err := executor.Encode(req, nil)
	if err != nil {
		return nil, err
	}
	return p.caller.Send(ctx, subject.Executor(subject.Provider, p.at), string(p.at), nil, body, func(r bus.Reply) {
		got := reply{err: r.Err}
		switch {
		case r.NoResponders:
			got.err = fmt.Errorf("nobody listens at %s", p.at)
		case got.err == nil:
			got.err = json.Unmarshal(r.Data, &got.final)
		}
		if got.err != nil || got.final.State.Final() {
			select {
			case answers <- got:
			default:
			}
		}
	})
}
