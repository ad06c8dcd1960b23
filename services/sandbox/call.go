package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	contract "skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/executor/engine"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/deps"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/pool"
	"skandha.dev/services/sandbox/tools"
)

const (
	// placeWithin is how long a call waits for a sandbox while all are in use.
	placeWithin = 30 * time.Second
	// beforeEnd is how long before its deadline a call's run is stopped, so that its output
	// becomes part of the result.
	beforeEnd = 2 * time.Second
)

// call is one attempt in progress.
type call struct {
	tools.Call
	turn     string
	owner    string // the principal whose share of the sandboxes it uses
	job      tools.Job
	progress func(string)
}

// place is the sandbox that a call works in.
type place struct {
	sandbox  *pool.Sandbox
	notice   string   // what the model must know about it
	packages []string // installed
}

// work carries out one attempt.
func (s *Service) work(ctx context.Context, req contract.Request, progress func(string)) contract.Answer {
	s.counts.calls.Add(1)
	ref := subject.Ref{Agent: req.Agent, Session: req.Session}
	c := call{
		Call: tools.Call{Ref: ref, ID: req.Call, Attempt: req.Attempt}, turn: req.Tool.Turn,
		owner: string(req.Agent) + "/" + string(req.Tool.Principal), progress: progress,
	}
	args, errs := s.tools[req.Tool.Name].args.Validate(req.Tool.Args)
	if errs != nil {
		return s.answer(ctx, c, tool.Failure(tool.CodeInvalidArgs, "invalid arguments; the tool was not run", errs...))
	}
	job, err := s.tools[req.Tool.Name].Read(args)
	if err != nil {
		return s.answer(ctx, c, tool.Failure(tool.CodeInvalidArgs, "invalid arguments; the tool was not run", err.Error()))
	}
	c.job = job
	wanted, errs := wants(job)
	if errs != nil {
		return s.answer(ctx, c, tool.Failure(tool.CodeInvalidArgs, "invalid dependencies; the tool was not run", errs...))
	}
	own := s.leases.enter(ref, req.Tool)
	if own == nil {
		return engine.DidNotRun("the session was reset after the call was made")
	}
	defer s.leave(own)
	if job.Fresh {
		return s.once(ctx, c, wanted)
	}
	if err := own.await(ctx); err != nil {
		return engine.DidNotRun("it was stopped while it waited for an earlier call of the session")
	}
	defer own.done()
	at, err := s.place(ctx, own, c, wanted)
	if err != nil {
		return s.withoutSandbox(ctx, c, err)
	}
	res, why := s.carryOut(ctx, c, at)
	if why != nil {
		s.counts.broken.Add(1)
		s.leases.broken(own, at.sandbox, why)
	}
	return s.answer(ctx, c, res)
}

// leave ends a call in its session. If another call waits for a place, the session's sandbox
// may become free for it.
func (s *Service) leave(own *session) {
	s.leases.leave(own)
	s.makeRoom()
}

// once carries out a call in a sandbox that is used for this call only.
func (s *Service) once(ctx context.Context, c call, wanted deps.Requirements) contract.Answer {
	set, err := s.install(ctx, c, wanted)
	if err != nil {
		return s.withoutSandbox(ctx, c, err)
	}
	sandbox, err := s.get(ctx, c, set, wanted)
	if err != nil {
		return s.withoutSandbox(ctx, c, err)
	}
	defer s.pool.Discard(sandbox)
	res, why := s.carryOut(ctx, c, place{sandbox: sandbox, packages: wanted.Strings()})
	if why != nil {
		s.counts.broken.Add(1)
	}
	return s.answer(ctx, c, res)
}

// place returns the session's sandbox, with the packages that the call requires.
func (s *Service) place(ctx context.Context, own *session, c call, wanted deps.Requirements) (place, error) {
	sandbox := s.leases.current(own)
	as, have := s.leases.state(own)
	all := deps.Merge(have, wanted)
	at := place{sandbox: sandbox, packages: all.Strings()}
	if sandbox != nil && len(wanted) == 0 {
		return at, nil
	}
	set, err := s.install(ctx, c, all)
	if err != nil {
		return place{}, err
	}
	if sandbox != nil && sandbox.Set == set {
		return at, nil
	}
	if at.sandbox, err = s.get(ctx, c, set, all); err != nil {
		return place{}, err
	}
	if sandbox != nil {
		c.progress("moving the session's files to a sandbox with the packages")
		if err := move(ctx, sandbox, at.sandbox); err != nil {
			s.pool.Discard(at.sandbox)
			return place{}, err
		}
	}
	var ok bool
	if at.notice, ok = s.leases.grant(own, as, at.sandbox, all); !ok {
		s.pool.Discard(at.sandbox)
		return place{}, errReset
	}
	return at, nil
}

// errReset: the caller no longer waits for the call.
var errReset = &tools.Error{Message: "the session was reset in the meantime"}

// get takes a sandbox from the pool. A set that was removed in the meantime is installed
// again, once.
func (s *Service) get(ctx context.Context, c call, set string, packages deps.Requirements) (*pool.Sandbox, error) {
	if set != "" || s.pool.Stats().Warm == 0 {
		c.progress("starting a sandbox")
	}
	sandbox, err := s.await(ctx, c.owner, set)
	if !errors.Is(err, driver.ErrNoSet) {
		return sandbox, err
	}
	if set, err = s.install(ctx, c, packages); err != nil {
		return nil, err
	}
	return s.await(ctx, c.owner, set)
}

// await waits for a sandbox, for at most placeWithin.
func (s *Service) await(ctx context.Context, owner, set string) (*pool.Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, placeWithin)
	defer cancel()
	return s.pool.Get(ctx, owner, set)
}

// wants returns the packages of a job, or every reason why they are not admitted.
func wants(j tools.Job) (deps.Requirements, []string) {
	if len(j.Packages) == 0 {
		return nil, nil
	}
	reqs, errs := deps.Parse(j.Packages)
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return reqs, out
}

// install creates the package set for want and returns its id.
func (s *Service) install(ctx context.Context, c call, want deps.Requirements) (set string, err error) {
	if len(want) == 0 {
		return "", nil
	}
	if s.packages == nil {
		return "", &tools.Error{Message: "packages cannot be installed here; use none in dependencies"}
	}
	c.progress("installing packages")
	return s.packages.Ensure(ctx, want, c.progress)
}

// move copies the workspace from one sandbox into another.
func move(ctx context.Context, from, to *pool.Sandbox) error {
	r, w := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := from.Export(ctx, w)
		_ = w.CloseWithError(err) // never fails
		sent <- err
	}()
	err := to.Import(ctx, r)
	_ = r.CloseWithError(errors.Join(err, errEnough)) // ends the sender if it still sends
	if exported := <-sent; exported != nil && !errors.Is(exported, errEnough) {
		return fmt.Errorf("copying the session's files: %w", exported)
	}
	if err != nil {
		return fmt.Errorf("copying the session's files into a new sandbox: %w", err)
	}
	return nil
}

// withoutSandbox returns the answer to a call that got no sandbox: it did not run.
func (s *Service) withoutSandbox(ctx context.Context, c call, err error) contract.Answer {
	var packages *deps.Error
	var refused *tools.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return engine.DidNotRun("it was stopped before its sandbox was ready")
	case errors.As(err, &packages):
		return s.answer(ctx, c,
			tool.Failure(tool.CodeFailed, "cannot install the packages, so the code was not run: "+packages.Error()))
	case errors.As(err, &refused):
		return s.answer(ctx, c, tool.Failure(tool.CodeFailed, refused.Message+"; the tool was not run"))
	case errors.Is(err, pool.ErrFull), errors.Is(err, pool.ErrClosed):
		return s.answer(ctx, c, tool.Failure(tool.CodeFailed, "the tool was not run: "+err.Error()))
	case errors.Is(err, driver.ErrUnavailable):
		return s.answer(ctx, c, tool.Failure(tool.CodeFailed, "the tool was not run: "+err.Error()))
	}
	s.log.Warn("a call got no sandbox", "call", c.ID, "error", err)
	return s.answer(ctx, c, tool.Failure(tool.CodeFailed, "no sandbox, so the tool was not run: "+err.Error()))
}

// answer counts a failure and limits the result's size.
func (s *Service) answer(ctx context.Context, c call, r tool.Result) contract.Answer {
	if !r.Success {
		s.counts.failures.Add(1)
	}
	if len(r.Data) > result.MaxData {
		r.Data = markTruncated(r.Data)
	}
	r = result.Limit(ctx, s.bus, result.Name(c.Ref, c.ID, c.Attempt), r)
	return contract.Answer{Result: &r}
}

// markTruncated marks the data of a run as truncated.
func markTruncated(data json.RawMessage) json.RawMessage {
	var o outcome
	if err := json.Unmarshal(data, &o); err != nil || o.Artifacts == nil {
		return data // of an operation on files
	}
	o.Truncated = true
	if out, err := json.Marshal(o); err == nil {
		return out
	}
	return data
}

// carryOut does the job. why is set when the sandbox can no longer be used.
func (s *Service) carryOut(ctx context.Context, c call, at place) (res tool.Result, why error) {
	defer s.pool.Working()()
	if c.job.Run != nil {
		return s.run(ctx, c, at)
	}
	res, err := c.job.Do(ctx, at.sandbox.Conn, c.Call, s.bus)
	if err == nil {
		return withNotice(res, at.notice), nil
	}
	if res, ok := tools.Failure(err); ok {
		return withNotice(res, at.notice), nil
	}
	if why := broken(at.sandbox, err); why != nil {
		return s.brokenResult(why), why
	}
	return tool.Failure(tool.CodeFailed, err.Error()), nil
}

// withNotice adds a notice for the model. A failure has it in its details.
func withNotice(r tool.Result, notice string) tool.Result {
	if notice == "" {
		return r
	}
	if r.Error != nil {
		r.Error.Details = append(r.Error.Details, notice)
		return r
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(r.Data, &fields); err != nil || fields == nil {
		return r // the tools return objects
	}
	text, err := json.Marshal(notice)
	if err != nil {
		return r
	}
	fields["notice"] = text
	return tool.OK(fields)
}

// broken returns why the sandbox can no longer be used, or nil.
func broken(sandbox *pool.Sandbox, err error) error {
	if ended := sandbox.Ended(); ended != nil {
		return ended
	}
	if errors.Is(err, agent.ErrBroken) {
		return err
	}
	return nil
}

// brokenResult is the result of a call whose sandbox broke during it.
func (s *Service) brokenResult(why error) tool.Result {
	msg := "the sandbox broke during this call: " + why.Error()
	if errors.Is(why, driver.ErrMemory) {
		msg = fmt.Sprintf("the sandbox ran out of memory during this call; it has %d MiB in total, "+
			"including files in /tmp and /workspace", s.cfg.Limits.Memory>>20)
	}
	return tool.Failure(tool.CodeFailed, msg+". Its files are lost; the next call gets a new sandbox")
}

// printer publishes the call's output on the session's stream.
func (s *Service) printer(ctx context.Context, c call) *printer {
	subj, source := c.Stream(), "skandha/sandbox/"+string(s.bus.Instance())
	return newPrinter(func(o tool.Output) {
		o.Call, o.Attempt = c.ID, c.Attempt
		if err := s.bus.PublishLive(ctx, c.Ref, subj, nil, outputEvent(c, source, o).AppendJSON(nil)); err != nil {
			s.log.Debug("a piece of output was lost", "call", c.ID, "n", o.N, "error", err)
		}
	})
}

var _ tools.Store = (*journal.Journal)(nil)
