package listener

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/effect"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/listener/contract"
)

const (
	// deliverTimeout is how long one delivery may take.
	deliverTimeout = time.Minute
	// slotsPerGateway are enough for what the outbox sends to one gateway at a time, so that a gateway
	// that hangs does not hold up the others.
	slotsPerGateway = coreapi.DeliveriesAtOnce
)

// gateways are the listeners that also deliver, by the names of their tools.
func (s *Service) gateways() map[string]contract.Gateway {
	out := map[string]contract.Gateway{}
	for _, l := range s.listeners {
		if g, ok := l.(contract.Gateway); ok {
			out[tool.Deliverer(g.Name())] = g
		}
	}
	return out
}

// offerGateways offers the tools of the gateways until ctx ends, and then finishes what is being
// delivered, before done is closed.
func (s *Service) offerGateways(ctx context.Context) (failed <-chan error, done <-chan struct{}) {
	fault, over := make(chan error, 1), make(chan struct{})
	all := s.gateways()
	if len(all) == 0 {
		close(over)
		return fault, over
	}
	d := deliverer{gateways: all, marks: effect.New(s.deps.Bus)}
	cfg := engine.Config{
		Kind: subject.Runner, Service: "listener", Work: d.work, DrainTimeout: s.opts.Drain, Logger: s.deps.Logger,
		Pools: []executor.Pool{{Name: executor.DefaultPool, Slots: slotsPerGateway * len(all)}},
	}
	for name, g := range all {
		cfg.Tools = append(cfg.Tools, tool.Spec{
			Name: name, Description: "Delivers a message by the listener " + string(g.Name()) + ".", Args: deliveryArgs,
			Internal: true, Probe: true, TimeoutMS: deliverTimeout.Milliseconds(),
		})
	}
	go func() {
		defer close(over)
		if err := engine.Serve(ctx, s.deps.Bus, cfg); err != nil {
			fault <- fmt.Errorf("offering the gateways: %w", err)
		}
	}()
	return fault, over
}

// deliveryArgs is schemas/tool/delivery.json, as far as a runner checks it.
var deliveryArgs = json.RawMessage(`{"type":"object","required":["kind","to","text"],"properties":{
	"kind":{"enum":["answer","failure","approval","notice"]},"to":{"type":"string","minLength":1},
	"text":{"type":"string"},"in_reply_to":{"type":"string"},"turn":{"type":"string"},"link":{"type":"string"},
	"approval":{"type":"object"}},"additionalProperties":false}`)

// deliverer is the executor's work.
type deliverer struct {
	gateways map[string]contract.Gateway
	marks    *effect.Marks
}

func (d deliverer) work(ctx context.Context, req executor.Request, _ func(string)) executor.Answer {
	r := d.result(ctx, req)
	return executor.Answer{Result: &r}
}

func (d deliverer) result(ctx context.Context, req executor.Request) tool.Result {
	g := d.gateways[req.Tool.Name]
	m := contract.Outgoing{Agent: req.Agent, Session: req.Session, Key: req.Tool.Key, Attempt: req.Attempt}
	if err := json.Unmarshal(req.Tool.Args, &m.Delivery); err != nil {
		return tool.Failure(tool.CodeInvalidArgs, "reading the delivery: "+err.Error())
	}
	key := effect.Key(req.Tool.Key, req.Call)
	if p := req.Tool.Probe; p != nil {
		m.Begin = func(context.Context) error { return errProbing }
		return d.marks.Probe(ctx, key, func(began effect.Record) tool.Result {
			return g.Probe(ctx, m, tool.Begun{At: began.At, Until: p.NotAfter, Attempt: began.Attempt})
		})
	}
	return d.marks.Run(ctx, key, req.Attempt, func(begin func(context.Context) error) tool.Result {
		m.Begin = begin
		return g.Deliver(ctx, m)
	})
}

var errProbing = errors.New("a probe begins no effect")
