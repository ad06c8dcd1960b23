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
	"skandha.dev/services/internal/workspace"
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
	kept     *kept    // what is saved of its files; nil: they are not
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
	if job.Fresh {
		defer s.leave(own)
		return s.once(ctx, c, wanted)
	}
	if err := own.await(ctx); err != nil {
		s.leave(own)
		return engine.DidNotRun("it was stopped while it waited for an earlier call of the session")
	}
	answer, pending := s.inTurn(ctx, own, c, wanted)
	end := func() {
		own.done()
		s.leave(own)
	}
	if pending == nil {
		end()
		return answer
	}
	s.saver.tasks.Go(func() {
		defer end()
		pending()
	})
	return answer
}

// inTurn carries out a call that has its session's turn. If pending is not nil, the session keeps the turn until
// pending has returned.
func (s *Service) inTurn(ctx context.Context, own *session, c call, wanted deps.Requirements) (_ contract.Answer, pending func()) {
	at, err := s.place(ctx, own, c, wanted)
	if err != nil {
		return s.withoutSandbox(ctx, c, err), nil
	}
	res, why := s.carryOut(ctx, c, at)
	if why != nil {
		s.counts.broken.Add(1)
		s.leases.broken(own, at.sandbox, why)
	} else {
		res, pending = s.save(ctx, c, at, res)
	}
	return s.answer(ctx, c, res), pending
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

// place returns the session's sandbox, with the packages that the call requires, and with the session's files.
func (s *Service) place(ctx context.Context, own *session, c call, wanted deps.Requirements) (place, error) {
	sandbox := s.leases.current(own)
	as, have, lost := s.leases.state(own)
	at := place{sandbox: sandbox}
	if sandbox != nil {
		_, at.kept = s.leases.held(own)
	}
	var files *workspace.Head
	if sandbox == nil {
		var err error
		if files, err = s.find(ctx, c.Ref, as.lease, lost); err != nil {
			return place{}, err
		}
		if files != nil {
			have = deps.Merge(packagesOf(files), have)
		}
	}
	all := deps.Merge(have, wanted)
	at.packages = all.Strings()
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
	if err := s.fill(ctx, c, as.lease, &at, sandbox, &files); err != nil {
		s.pool.Discard(at.sandbox)
		return place{}, err
	}
	at.notice = lost.notice(files)
	if !s.leases.grant(own, as, at, all) {
		s.pool.Discard(at.sandbox)
		return place{}, errReset
	}
	return at, nil
}

// fill puts the session's files into its new sandbox: those of its present one, or the saved ones, which become nil
// if they turn out to be lost.
func (s *Service) fill(ctx context.Context, c call, lease string, at *place, from *pool.Sandbox, files **workspace.Head) error {
	if from != nil {
		c.progress("moving the session's files to a sandbox with the packages")
		if err := move(ctx, from, at.sandbox); err != nil || at.kept == nil {
			return err
		}
		return at.kept.copy.Moved(ctx, at.sandbox)
	}
	at.kept = s.fresh(c.Ref, lease)
	if *files == nil || len((*files).Index) == 0 {
		*files = nil
		return nil
	}
	c.progress("restoring the session's files")
	k, lost, err := s.restore(ctx, *files, at.sandbox)
	if lost == nil {
		at.kept = k
		return err
	}
	// It may hold some of them.
	s.pool.Discard(at.sandbox)
	*files = nil
	again, err := s.await(ctx, c.owner, at.sandbox.Set)
	if err == nil {
		at.sandbox = again
	}
	return err
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
	ctx, end := s.steps.begin(ctx, stepGet)
	sandbox, err := s.pool.Get(ctx, owner, set)
	end(err)
	return sandbox, err
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
	ctx, end := s.steps.begin(ctx, stepInstall)
	set, err = s.packages.Ensure(ctx, want, c.progress)
	end(err)
	return set, err
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
	s.log.WarnContext(ctx, "a call got no sandbox", "call", c.ID, "error", err)
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
	ctx, end := s.steps.begin(ctx, stepRun)
	defer func() { end(why) }()
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
	var before string
	if json.Unmarshal(fields["notice"], &before) == nil && before != "" {
		notice = before + ". " + notice
	}
	text, err := json.Marshal(notice)
	if err != nil {
		return r
	}
	fields["notice"] = text
	out := tool.OK(fields)
	out.Files, out.Metadata = r.Files, r.Metadata
	return out
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
	lost := "Its files are lost; the next call gets a new sandbox"
	if s.saving() {
		lost = "What this call did to files is lost; the next call gets a new sandbox with the files that were saved before"
	}
	return tool.Failure(tool.CodeFailed, msg+". "+lost)
}

// printer publishes the call's output on the session's stream.
func (s *Service) printer(ctx context.Context, c call) *printer {
	source := "skandha/sandbox/" + string(s.bus.Instance())
	return newPrinter(func(o tool.Output) {
		o.Call, o.Attempt = c.ID, c.Attempt
		if err := s.bus.PublishOutput(ctx, c.Ref, c.turn, source, o); err != nil {
			s.log.Debug("a piece of output was lost", "call", c.ID, "n", o.N, "error", err)
		}
	})
}

var _ tools.Store = (*journal.Journal)(nil)
