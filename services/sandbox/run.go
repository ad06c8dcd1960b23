package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/sandbox/agent"
	"skandha.dev/services/sandbox/tools"
)

const (
	// maxArtifacts is how many files of a run are kept.
	maxArtifacts = 20
	// keepWithin bounds the storing of them.
	keepWithin = 30 * time.Second
	// saying is how often a run's progress is told.
	saying = time.Second
)

// outcome is the data of a run's result.
type outcome struct {
	Stdout     string           `json:"stdout"`
	Stderr     string           `json:"stderr"`
	Result     json.RawMessage  `json:"result,omitempty"` // of Python: the last expression; absent if there is none, or None
	ExitCode   int              `json:"exit_code"`
	Signal     string           `json:"signal,omitempty"` // that ended it
	DurationMS int64            `json:"duration_ms"`
	Truncated  bool             `json:"truncated"` // of stdout and stderr something is left out
	Artifacts  []tools.Artifact `json:"artifacts"`
	LeftOut    []string         `json:"artifacts_left_out,omitempty"` // with the reasons
	Notice     string           `json:"notice,omitempty"`             // what else the model has to know
	Packages   []string         `json:"packages,omitempty"`           // that were asked for and are installed
	Strays     int              `json:"ended_processes,omitempty"`    // left running by the code, and ended
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
		return tool.Failure(tool.CodeFailed, "the sandbox could not run it: "+err.Error()), nil
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
		Stdout: exit.Stdout.Text, Stderr: exit.Stderr.Text, ExitCode: exit.Code, Signal: exit.Signal, DurationMS: exit.Duration.Milliseconds(),
		Truncated: exit.Stdout.Cut || exit.Stderr.Cut, Artifacts: []tools.Artifact{}, Strays: exit.Strays,
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

// judge decides whether a run succeeded. What depends on a program that failed must not
// run, so an exit code other than 0 is a failure; the data says what it had done until then.
func judge(exit agent.Exit, stopped error, limit time.Duration, o outcome) tool.Result {
	r := tool.OK(o)
	if !r.Success {
		return r
	}
	switch {
	case exit.TimedOut:
		r.Error = &tool.Error{Code: tool.CodeTimeout, Message: fmt.Sprintf("it did not end within %v and was stopped; what it had printed and written until then is there. "+
			"If it needs longer, set timeout (seconds)", limit.Round(time.Millisecond))}
	case exit.Stopped || stopped != nil:
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: "it was stopped from outside before it had ended"}
	case exit.Signal == "SIGKILL":
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: "it was killed, as processes are when the sandbox has no memory left for them; use less at a time"}
	case exit.Signal != "":
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: "ended by " + exit.Signal}
	case exit.Code != 0:
		r.Error = &tool.Error{Code: tool.CodeFailed, Message: exitMessage(exit)}
	}
	r.Success = r.Error == nil
	return r
}

// maxLastLine bounds what the message repeats of standard error, in bytes.
const maxLastLine = 500

// exitMessage is the last line of standard error, where interpreters and most commands
// say what went wrong, and the exit code.
func exitMessage(exit agent.Exit) string {
	code := fmt.Sprintf("exit %d", exit.Code)
	lines := strings.Split(strings.TrimSpace(exit.Stderr.Text), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" {
		return code
	}
	return fmt.Sprintf("%s (%s)", result.Clip(last, maxLastLine), code)
}

// keep stores the files that the run has left for the user.
func (s *Service) keep(ctx context.Context, c call, at place, exit agent.Exit, o *outcome) {
	defer func() { o.LeftOut = append(o.LeftOut, exit.UnseenFiles...) }()
	// The call's own deadline may be near, and the files are there.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepWithin)
	defer cancel()
	var reasons reasons
	for i, f := range exit.Files {
		if f.Type != "file" {
			continue
		}
		if len(o.Artifacts) == maxArtifacts {
			more := len(exit.Files) - i + exit.MoreFiles
			o.LeftOut = append(o.LeftOut, fmt.Sprintf("%d more files: at most %d are kept of one call", more, maxArtifacts))
			return
		}
		if f.Size > tools.MaxArtifact {
			o.LeftOut = append(o.LeftOut, fmt.Sprintf("%.200s: it has %d bytes, at most %d are kept", f.Path, f.Size, tools.MaxArtifact))
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
		o.LeftOut = append(o.LeftOut, fmt.Sprintf("%d more files: at most %d are looked at of one call", exit.MoreFiles, len(exit.Files)))
	}
}

// reasons say why files were not kept, a quota or a full store once: that is the
// same for every file, and long.
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

// report tells how far a run is, until it is stopped.
func (c call) report(out *printer) (stop func()) {
	began := time.Now()
	c.progress("it runs")
	ended := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(saying)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				c.progress(fmt.Sprintf("it runs for %v, %d bytes printed", time.Since(began).Round(time.Second), out.printed()))
			}
		}
	}()
	return func() { close(ended); <-done }
}

// output is the payload of an event about what is printed.
type output tool.Output

// EventType implements event.Payload.
func (output) EventType() event.Type { return event.TypeOutput }

func outputEvent(c call, source string, o tool.Output) event.Event {
	e := event.New(c.Ref, c.ID+"/"+c.Attempt+"/"+strconv.Itoa(o.N), source, output(o))
	e.Turn = c.turn
	return e
}

// errEnough ends a copy whose reader has had enough.
var errEnough = errors.New("the copy has ended")
