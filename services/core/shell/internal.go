package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/attempt"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/core/outbox"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/nesting"
)

// internalPrincipal is the prefix of an internal call's principal. Ids contain no colon,
// so no writer of inputs has such a name.
const internalPrincipal = "internal:"

// internalTries is how many runners are tried before a call fails because they are full
// or gone.
const internalTries = 4

// internalCall is a call of an internal tool by a service or a plugin. It is not part of a
// turn. Hooks are not asked and nothing is committed, because the caller may be a hook that
// the session's next commit waits for.
type internalCall struct {
	tool.InternalCall
	ref   subject.Ref
	id    string
	key   string      // towards other systems
	probe *tool.Probe // asks what became of the earlier call with the id
	// delivery is set for a message of the outbox, which no policy judges
	delivery bool
	// watch is set for the page of a watch, with the label of what the agent has scheduled: policy can
	// deny it, and a person has approved it when the watch was created
	watch string
	spec  tool.Spec
	rule  decide.Ruling
}

// serveCall runs an internal tool.
func (c *Core) serveCall(q *bus.Request) (any, error) {
	n := internalCall{id: "internal-" + attempt.Nonce(), key: attempt.Nonce()}
	err := nesting.Check(q.Data)
	if err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "query: %v", err)
	}
	if err := decodeQuery(q.Data, &n.InternalCall); err != nil {
		return nil, err
	}
	if err := strictjson.Decode(q.Data, &tool.InternalCall{}); err != nil { // closed, as its schema is
		return nil, bus.Errorf(bus.CodeInvalidArgument, "query: %v", err)
	}
	if n.ref, err = subject.ParseRef(string(n.Agent), string(n.Session)); err != nil {
		return nil, bus.Errorf(bus.CodeInvalidArgument, "query: %v", err)
	}
	caller, err := subject.ParseCall(q.Subject)
	switch {
	case err != nil:
		return nil, bus.Errorf(bus.CodeInvalidArgument, "%v", err)
	case n.Caller != caller:
		return nil, bus.Errorf(bus.CodeDenied, "query: caller: is %q, and the subject, which credentials fix, names %s",
			string(n.Caller), caller)
	}
	if err := c.mayCall(q.Context(), n.Caller, n.Agent); err != nil {
		return nil, err
	}
	if c.plugins.Agent(n.Agent) == nil {
		return nil, bus.Errorf(bus.CodeNotFound, "no agent %s", n.Agent)
	}
	began := time.Now()
	r := c.internal(q.Context(), &n)
	code := tool.Code("")
	if r.Error != nil {
		code = r.Error.Code
	}
	c.internalCalls.Add(1)
	c.log.Info("internal call", "principal", internalPrincipal+string(n.Caller), "session", n.ref, "call", n.id,
		"tool", n.Tool, "hash", decide.Hash(n.spec, n.Args, nil), "effect", n.rule.Effect, "rule", n.rule.Rule,
		"success", r.Success, "code", code, "took", time.Since(began))
	return r, nil
}

// mayCall returns an error if the caller was invited, and not for the agent. The server lets only services and those who run
// the system use names that nobody was invited with.
func (c *Core) mayCall(ctx context.Context, caller subject.Writer, agent subject.Agent) error {
	if c.cfg.Identities == nil || !c.cfg.Identities.Known(subject.Identity(caller)) {
		return nil
	}
	ch, err := c.cfg.Identities.Charter(ctx, subject.Identity(caller))
	if err == nil && !ch.Serves(agent) {
		err = bus.Errorf(bus.CodeDenied, "the charter of %s does not name the agent %s", caller, agent)
	}
	return err
}

// internal judges the call and runs it.
func (c *Core) internal(ctx context.Context, n *internalCall) tool.Result {
	var known bool
	n.spec, known = c.lookupInternal(n.Tool)
	switch {
	case !known:
		return tool.Failure(tool.CodeUnknownTool, fmt.Sprintf("no runner offers the tool %q", n.Tool))
	case !n.spec.Internal && n.watch == "":
		return tool.Failure(tool.CodeDenied,
			fmt.Sprintf("tool %q is not internal: only a turn of the agent can call it", n.Tool))
	case n.spec.Sticky:
		return tool.Failure(tool.CodeDenied, fmt.Sprintf("tool %q is sticky: only a turn of the agent has its lease", n.Tool))
	}
	if len(n.Args) == 0 {
		n.Args = json.RawMessage("{}")
	}
	var errs []string
	if n.Args, errs = c.validateInternal(n.Tool, n.Args); len(errs) > 0 {
		return tool.Failure(tool.CodeInvalidArgs, "invalid arguments; the tool was not run", errs...)
	}
	principal := subject.Writer(internalPrincipal + string(n.Caller))
	agent := c.plugins.Agent(n.Agent)
	if agent == nil {
		agent = &decide.Agent{} // a failure of an agent that does not exist is delivered, too
	}
	if n.delivery { // policy has judged the calls of the turn, and its answer belongs to the sender
		return c.runInternal(ctx, n)
	}
	n.rule = c.cfg.Policy.Evaluate(decide.Access{
		Principal: principal, Action: event.ActionCall, Resource: n.spec, Granted: agent.Granted, Unguided: agent.Unguided,
		Context: decide.Context{Ref: n.ref, Turn: n.Turn, Call: n.id, Source: string(n.Caller), Args: n.Args, After: n.after()},
	})
	switch {
	case n.rule.Effect == decide.Allow, n.rule.Effect == decide.Ask && n.watch != "":
		if t, own := c.own[n.Tool]; own {
			return t.run(ctx, n)
		}
		return c.runInternal(ctx, n)
	case n.rule.Effect == decide.Ask:
		return tool.Failure(tool.CodeDenied, fmt.Sprintf(
			"policy requires a user's approval, which internal calls cannot ask for; "+
				"to allow it, add a rule for the principal %q", principal))
	}
	return tool.Failure(tool.CodeDenied, n.rule.Reason)
}

// runInternal sends the call to a runner, and to another one if the first did not run it.
func (c *Core) runInternal(ctx context.Context, n *internalCall) tool.Result {
	limit := n.spec.Timeout()
	if o := n.rule.Obligations; o != nil && o.MaxDurationMS > 0 {
		limit = min(limit, time.Duration(o.MaxDurationMS)*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, executor.StartWithin+limit)
	defer cancel()
	why := "no runner has a free slot"
	var not []subject.Instance
	for range internalTries {
		inst, free := c.dir.Idle(n.Tool, not)
		if !free {
			break
		}
		a, err := c.attemptInternal(ctx, n, inst, limit)
		switch {
		case err != nil:
			return n.lost(err.Error())
		case a.State == executor.Finished && n.probe != nil:
			return decide.ResultOfProbe(a)
		case a.State == executor.Finished:
			return decide.ResultOf(a, n.rule.Obligations)
		case a.State != executor.Refused && a.State != executor.Never:
			return n.lost(fmt.Sprintf("runner %s answered %s %s", inst, a.State, a.Message))
		}
		why, not = fmt.Sprintf("runner %s did not run it: %s", inst, a.Message), append(not, inst)
	}
	return outbox.Unasked(why)
}

// after returns the labels of texts from outside that the call follows.
func (n *internalCall) after() []string {
	if n.watch == "" {
		return nil
	}
	return []string{n.watch}
}

// lost is the result of a call without an answer. A probe without one has found out nothing.
func (n *internalCall) lost(why string) tool.Result {
	if n.probe != nil {
		return outbox.Unasked(why)
	}
	return tool.Failure(tool.CodeOutcomeUnknown, "it may have run: "+why)
}

// attemptInternal sends the call to a runner and waits for its final answer.
func (c *Core) attemptInternal(
	ctx context.Context, n *internalCall, to subject.Instance, limit time.Duration,
) (executor.Answer, error) {
	id := attempt.ID{Ref: n.ref, Call: n.id, Attempt: attempt.Nonce(), Kind: subject.Runner, Instance: to}
	now := time.Now()
	end := now.Add(executor.StartWithin + limit)
	if by, ok := ctx.Deadline(); ok && by.Before(end) {
		end = by
	}
	r := id.Request(executor.OpRun)
	r.StartBy, r.NotAfter = now.Add(executor.StartWithin), end
	r.Tool = &executor.ToolCall{
		Name: n.Tool, Args: n.Args, Turn: n.Turn, Spec: n.spec.Digest(), Key: n.key, Probe: n.probe,
	}
	body, err := executor.Encode(r, nil)
	if err != nil {
		return executor.Answer{}, err
	}
	heard := make(chan attempt.Answer, 16)
	listen := func(a attempt.Answer) {
		select {
		case heard <- a:
		default: // the call is asked about again
		}
	}
	cancel, err := c.attempts.Send(ctx, id, body, listen)
	if err != nil {
		return executor.Answer{State: executor.Never, Message: err.Error()}, nil
	}
	defer cancel()
	defer c.attempts.Release(id)
	return c.awaitInternal(ctx, id, heard, listen)
}

// internalSilence is how long a runner may be silent before it is asked about an internal call.
const internalSilence = 2 * executor.Heartbeat

// awaitInternal waits for the final answer about an attempt, and asks a runner that is silent.
func (c *Core) awaitInternal(
	ctx context.Context, id attempt.ID, heard <-chan attempt.Answer, listen func(attempt.Answer),
) (executor.Answer, error) {
	asked := false
	silence := time.NewTimer(internalSilence)
	defer silence.Stop()
	for {
		select {
		case a := <-heard:
			switch {
			case a.Gone && !asked:
				return executor.Answer{State: executor.Never, Message: "the runner no longer exists"}, nil
			case a.Gone:
				return executor.Answer{}, fmt.Errorf("runner %s died", id.Instance)
			case a.State.Final():
				return a.Answer, nil
			}
			silence.Reset(internalSilence)
		case <-silence.C:
			asked = true
			cancel, err := c.attempts.Send(ctx, id, id.Encode(executor.OpAsk), listen)
			if err == nil {
				defer cancel()
			}
			silence.Reset(internalSilence)
		case <-ctx.Done():
			c.attempts.Stop(id)
			return executor.Answer{}, fmt.Errorf("runner %s did not answer in time and was asked to stop it", id.Instance)
		}
	}
}

// Deliver implements [outbox.Caller].
func (c *Core) Deliver(ctx context.Context, d outbox.Call) tool.Result {
	n := internalCall{
		InternalCall: tool.InternalCall{Agent: d.Agent, Session: d.Session, Caller: outboxCaller, Tool: d.Tool, Args: d.Args},
		ref:          d.Ref, id: d.ID, key: d.Key, probe: d.Probe, delivery: true,
	}
	began := time.Now()
	r := c.internal(ctx, &n)
	c.log.Info("delivery", "session", n.ref, "call", n.id, "tool", n.Tool, "probe", d.Probe != nil, "success", r.Success,
		"took", time.Since(began))
	return r
}

// outboxCaller is the caller of deliveries.
const outboxCaller = subject.Writer("outbox")

// Delivers implements [outbox.Caller].
func (c *Core) Delivers(name string) (time.Duration, bool) {
	spec, known := c.lookupInternal(name)
	return spec.Timeout(), known
}

// Pending implements [outbox.Caller].
func (c *Core) Pending(ctx context.Context, ref subject.Ref, call string) (bool, error) {
	s, err := c.loader.Load(ctx, ref, nil)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(s.Confirmations(), func(st decide.Step) bool { return st.Call == call }), nil
}
