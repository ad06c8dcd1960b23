package foreigntest

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/test/natstest"
)

// Generate has the provider service put a question to one of its providers, which
// may be a plugin's, as core does, and returns the final answer. The plan must be
// new each time.
func (s *System) Generate(name, plan string, messages ...provider.Message) (final executor.Answer) {
	s.t.Helper()
	b, err := s.Connect(natstest.Context(s.t), "generate")
	if err != nil {
		s.t.Fatal(err)
	}
	defer b.Close()
	caller, err := b.NewCaller()
	if err != nil {
		s.t.Fatal(err)
	}
	req := executor.Request{
		Op: executor.OpRun, Agent: "main", Session: "generate", Call: plan, Attempt: "a1", Provider: name,
		StartBy: time.Now().Add(natstest.Patience), NotAfter: time.Now().Add(natstest.Patience), Model: &provider.Request{},
	}
	for _, m := range messages {
		raw, err := json.Marshal(m)
		if err != nil {
			s.t.Fatal(err)
		}
		req.Model.Messages = append(req.Model.Messages, raw)
	}
	body, err := executor.Encode(req, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	defer cancel()
	at := s.provider(name)
	answers := make(chan bus.Reply, 64)
	forget, err := caller.Send(ctx, subject.Executor(subject.Provider, at), string(at), nil, body,
		func(r bus.Reply) { answers <- r })
	if err != nil {
		s.t.Fatal(err)
	}
	defer forget()
	for {
		select {
		case r := <-answers:
			if r.Err != nil || r.NoResponders {
				s.t.Fatalf("asking provider %s: %v, no responders: %t", name, r.Err, r.NoResponders)
			}
			if err := json.Unmarshal(r.Data, &final); err != nil {
				s.t.Fatal(err)
			}
			if final.State.Final() {
				return final
			}
		case <-ctx.Done():
			s.t.Fatalf("provider %s has not answered", name)
		}
	}
}

// provider waits until an instance of the provider service offers the provider.
func (s *System) provider(name string) (at subject.Instance) {
	s.t.Helper()
	natstest.Eventually(s.t, "the provider "+name+" is offered", func() bool {
		var st coreapi.Status
		if err := s.Client.Ask(natstest.Context(s.t), coreapi.VerbStatus, nil, &st); err != nil {
			s.t.Fatal(err)
		}
		for _, e := range st.Executors {
			if slices.ContainsFunc(e.Providers, func(i provider.Info) bool { return i.Name == name }) {
				at = e.Instance
			}
		}
		return at != ""
	})
	return at
}
