package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/tools"
)

const (
	// maxArtifacts bounds the files that are kept per run.
	maxArtifacts = 20
	// keepWithin bounds how long storing them may take.
	keepWithin = 30 * time.Second
	// progressEvery is how often a run's progress is reported.
	progressEvery = time.Second
)

// outcome is the data of a run's result.
type outcome struct {
	Stdout     string           `json:"stdout"`
	Stderr     string           `json:"stderr"`
	Result     json.RawMessage  `json:"result,omitempty"` // Python: the last expression; absent if none, or None
	ExitCode   int              `json:"exit_code"`
	Signal     string           `json:"signal,omitempty"` // the signal that ended it
	DurationMS int64            `json:"duration_ms"`
	Truncated  bool             `json:"truncated"` // stdout or stderr is incomplete
	Artifacts  []tools.Artifact `json:"artifacts"`
	LeftOut    []string         `json:"artifacts_left_out,omitempty"` // with the reasons
	Notice     string           `json:"notice,omitempty"`             // what else the model must know
	Packages   []string         `json:"packages,omitempty"`           // requested and installed
	Strays     int              `json:"ended_processes,omitempty"`    // processes left running, and ended
}

// run executes the call's code.
func (s *Service) run(ctx context.Context, c call, at place) (res tool.Result, why error) {
	out := s.printer(ctx, c)
	run := *c.job.Run
	run.Output = out.add
	if deadline, ok := ctx.Deadline(); ok {
		run.Timeout = max(min(run.Timeout, time.Until(deadline)-beforeEnd), time.Millisecond)
	}
	stop := c.report(out)
	exit, err := at.sandbox.Run(ctx, run)
	stop()
	out.close()
	if err != nil && ctx.Err() == nil || err != nil && !errors.Is(err, ctx.Err()) {
		if res, ok := tools.Failure(err); ok {
			return withNotice(res, at.notice), nil
		}
		if why := broken(at.sandbox, err); why != nil {
			return s.brokenResult(why), why
		}
		return tool.Failure(tool.CodeFailed, "the sandbox cannot run it: "+err.Error()), nil
	}
	o := outcomeOf(exit)
	o.Notice, o.Packages = at.notice, at.packages
	if err == nil {
		s.keep(ctx, c, at, exit, &o)
	}
	return judge(exit, err, run.Timeout, o), nil
}

func outcomeOf(exit agent.Exit) outcome {
	o := outcome{
		Stdout: exit.Stdout.Text, Stderr: exit.Stderr.Text, ExitCode: exit.Code, Signal: exit.Signal,
		DurationMS: exit.Duration.Milliseconds(),
		Truncated:  exit.Stdout.Cut || exit.Stderr.Cut, Artifacts: []tools.Artifact{}, Strays: exit.Strays,
	}
	switch {
	case len(exit.Result) > 0 && json.Valid(exit.Result):
		if string(exit.Result) != "null" {
			o.Result = exit.Result
		}
	case exit.Repr != "":
		o.Result, _ = json.Marshal(exit.Repr) // a string
	}
	return o
}

// judge decides whether a run succeeded. Whatever depends on a failed program must not run,
// so an exit code other than 0 is a failure; the data has what it did until then.
func judge(exit agent.Exit, stopped error, limit time.Duration, o outcome) tool.Result {
	r := tool.OK(o)
	if !r.Success {
		return r
	}
	switch {
	case exit.TimedOut:
		r.Error = &tool.Error{
			Code: tool.CodeTimeout,
			Message: fmt.Sprintf("it was stopped after %v, its time limit; its output and files up to then are kept. "+
				"If it needs longer, set timeout (seconds)", limit.Round(time.Millisecond)),
		}
	case exit.Stopped || stopped != nil:
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: "it was stopped from outside before it ended"}
	case exit.Signal == "SIGKILL":
		r.Error = &tool.Error{
			Code:    tool.CodeFailed,
			Message: "it was killed, probably because the sandbox ran out of memory; process less data at a time",
		}
	case exit.Signal != "":
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: "ended by " + exit.Signal}
	case exit.Code != 0:
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: exitMessage(exit)}
	}
	r.Success = r.Error == nil
	return r
}

// maxLastLine bounds the last line of standard error in the message, in bytes.
const maxLastLine = 500

// exitMessage returns the last line of standard error, where interpreters and most commands
// report what went wrong, and the exit code.
func exitMessage(exit agent.Exit) string {
	code := fmt.Sprintf("exit %d", exit.Code)
	lines := strings.Split(strings.TrimSpace(exit.Stderr.Text), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" {
		return code
	}
	return fmt.Sprintf("%s (%s)", text.Cut(last, maxLastLine), code)
}

// keep stores the files that the run left for the user.
func (s *Service) keep(ctx context.Context, c call, at place, exit agent.Exit, o *outcome) {
	defer func() { o.LeftOut = append(o.LeftOut, exit.UnseenFiles...) }()
	// The call's own deadline may be near, but the files exist.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepWithin)
	defer cancel()
	var reasons reasons
	for i, f := range exit.Files {
		if f.Type != "file" {
			continue
		}
		if len(o.Artifacts) == maxArtifacts {
			more := len(exit.Files) - i + exit.MoreFiles
			o.LeftOut = append(o.LeftOut, fmt.Sprintf("%d more files: at most %d are kept per call", more, maxArtifacts))
			return
		}
		if f.Size > tools.MaxArtifact {
			o.LeftOut = append(o.LeftOut, fmt.Sprintf("%.200s: %d bytes, the limit is %d", f.Path, f.Size, tools.MaxArtifact))
			continue
		}
		a, err := tools.Keep(ctx, at.sandbox.Conn, c.Call, s.bus, f.Path)
		if err != nil {
			o.LeftOut = append(o.LeftOut, fmt.Sprintf("%.200s: %s", f.Path, reasons.of(err)))
			continue
		}
		s.counts.artifacts.Add(1)
		o.Artifacts = append(o.Artifacts, a)
	}
	if exit.MoreFiles > 0 {
		o.LeftOut = append(o.LeftOut,
			fmt.Sprintf("%d more files: at most %d are considered per call", exit.MoreFiles, len(exit.Files)))
	}
}

// reasons formats why files were not kept. It gives the text about a quota or a full store
// only once: it is long, and the same for every file.
type reasons struct{ full bool }

func (r *reasons) of(err error) string {
	var e *bus.Error
	if !errors.As(err, &e) || e.Code != bus.CodeTooLarge {
		return err.Error()
	}
	if r.full {
		return "not stored, for the same reason"
	}
	r.full = true
	return e.Error()
}

// report reports a run's progress until it is stopped.
func (c call) report(out *printer) (stop func()) {
	began := time.Now()
	c.progress("running")
	ended := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				c.progress(fmt.Sprintf("running for %v, %d bytes printed", time.Since(began).Round(time.Second), out.printed()))
			}
		}
	}()
	return func() { close(ended); <-done }
}

// errEnough ends a copy whose reader needs no more.
var errEnough = errors.New("copy ended")
