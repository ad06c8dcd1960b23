package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/sandbox"
	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/sandbox/pool"
	"skandha.dev/services/sandbox/selection"
)

// printOne is the code that sandboxes and the host's Python run.
const printOne = "print(1)"

// refillTo is how many sandboxes the refilling of a pool is measured with.
const refillTo = 12

// containers is B8 and B9: Python in containers of the Docker engine.
func containers(ctx context.Context, o Options) ([]Row, error) {
	s, skipped, err := startSandbox(ctx, o, selection.Docker)
	if err != nil || skipped != nil {
		return skip(skipped, "B8", "B9"), err
	}
	defer s.stop()
	if err := s.start(ctx, sandbox.Config{Warm: 2}); err != nil {
		return nil, err
	}
	warm, host, err := interleave(ctx, o.n(200), s.again, hostPython)
	if err != nil {
		return nil, err
	}
	rows := []Row{ratio("B8", "python:execute, warm container, beside host python3 -c", warm, host, 0.25)}
	more, err := s.besideDocker(ctx, o)
	if rows = append(rows, more...); err != nil {
		return rows, err
	}
	per, err := s.refill(ctx)
	return append(rows,
		atLeast("B9", "containers made a second, "+strconv.Itoa(refillTo)+" at a stretch", per, 12, "/s")), err
}

// besideDocker are the rows whose raw side is what the docker command and the engine
// do by themselves.
func (s *sandboxRig) besideDocker(ctx context.Context, o Options) ([]Row, error) {
	cli, err := exec.LookPath("docker")
	if err != nil {
		return skip(errors.New("the docker command is not installed"), "B8", "B9"), nil
	}
	image := os.Getenv("SKANDHA_SANDBOX_IMAGE")
	if image == "" {
		image = "skandha/sandbox:latest"
	}
	execs, end, err := newExecs(ctx, cli, image)
	if err != nil {
		return nil, err
	}
	defer end()
	warm, raw, err := interleave(ctx, o.n(100), s.again, execs)
	if err != nil {
		return nil, err
	}
	rows := []Row{ratio("B8", "the same, beside docker exec by the engine's API", warm, raw, 0.05)}
	if err := s.start(ctx, sandbox.Config{Warm: -1}); err != nil {
		return rows, err
	}
	run := func(ctx context.Context) error {
		return output(exec.CommandContext(ctx, cli, "run", "--rm", "--network", "none", image, "python3", "-c", printOne))
	}
	drained, raw, err := interleave(ctx, o.n(50), s.fresh, run)
	return append(rows, ratio("B9", "the same, pool drained, beside docker run --rm", drained, raw, 0.5)), err
}

// bubbles is B10: Python in bubblewrap's sandboxes.
func bubbles(ctx context.Context, o Options) ([]Row, error) {
	s, skipped, err := startSandbox(ctx, o, selection.Bwrap)
	if err != nil || skipped != nil {
		return skip(skipped, "B10"), err
	}
	defer s.stop()
	if err := s.start(ctx, sandbox.Config{Warm: 2}); err != nil {
		return nil, err
	}
	warm, host, err := interleave(ctx, o.n(200), s.again, hostPython)
	if err != nil {
		return nil, err
	}
	rows := []Row{ratio("B10", "python:execute, warm bubblewrap, beside host python3 -c", warm, host, 0.25)}
	if err := s.start(ctx, sandbox.Config{Warm: -1}); err != nil {
		return rows, err
	}
	cold, host, err := interleave(ctx, o.n(100), s.fresh, hostPython)
	if err != nil {
		return rows, err
	}
	rows = append(rows, ratio("B10", "the same, cold", cold, host, 1.4))
	per, err := s.refill(ctx)
	return append(rows,
		atLeast("B10", "sandboxes created per second, "+strconv.Itoa(refillTo)+" in a row", per, 12, "/s")), err
}

// sandboxRig is a sandbox service on a bus, and somebody who calls it.
type sandboxRig struct {
	srv    *natsserver.Server
	driver driver.Driver
	caller *bus.Caller
	stops  []func()

	service subject.Instance
	end     func() // of the service
	calls   int
}

// startSandbox prepares a rig; skipped says why the driver cannot work here.
func startSandbox(ctx context.Context, o Options, name string) (s *sandboxRig, skipped, err error) {
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return nil, nil, err
	}
	s = &sandboxRig{end: func() {}, stops: []func(){func() { _ = os.RemoveAll(dir) }}} // scratch
	d, err := selection.New(selection.Config{
		Driver: name, Image: orDefault(name, os.Getenv("SKANDHA_SANDBOX_IMAGE")), Dir: filepath.Join(dir, "sets"),
		Instance: "bench", Log: quiet,
	})
	if err != nil {
		return nil, nil, err
	}
	s.driver = d
	s.stops = append(s.stops, func() { _ = d.Close() }) // it is the process's end
	if _, err := d.Report(ctx); err != nil {
		s.stop()
		return nil, err, nil
	}
	if s.srv, err = natsserver.Start(natsserver.Config{
		StoreDir: filepath.Join(dir, "nats"), Sync: natsserver.Relaxed, Logger: quiet,
	}); err == nil {
		s.stops = append(s.stops, s.srv.Shutdown)
		err = s.connect(ctx)
	}
	if err != nil {
		s.stop()
		return nil, nil, err
	}
	return s, nil, nil
}

func orDefault(name, image string) string {
	if name != selection.Docker {
		return ""
	}
	return image
}

func (s *sandboxRig) connect(ctx context.Context) error {
	b, err := journal.Connect(ctx, bus.Config{InProcess: s.srv, Name: "bench", Logger: quiet})
	if err != nil {
		return err
	}
	s.stops = append(s.stops, b.Close)
	if err := b.EnsureStreams(ctx, journal.StreamsConfig{}); err != nil {
		return err
	}
	s.caller, err = b.NewCaller()
	return err
}

// start runs a service instead of the one that ran, and waits until its pool is full.
func (s *sandboxRig) start(ctx context.Context, cfg sandbox.Config) error {
	s.end()
	b, err := journal.Connect(ctx, bus.Config{InProcess: s.srv, Name: "sandbox", Logger: quiet})
	if err != nil {
		return err
	}
	service, err := sandbox.New(cfg, sandbox.Deps{Bus: b, Logger: quiet, Driver: s.driver})
	if err != nil {
		return err
	}
	s.service, s.end = b.Instance(), background(b, service.Run)
	for service.Counters()["sandbox_warm"] < int64(cfg.Warm) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	for {
		if err := s.again(ctx); !errors.Is(err, errNobody) {
			return err
		}
		select { // it has not subscribed yet
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

var errNobody = errors.New("the sandbox service does not listen")

func (s *sandboxRig) stop() {
	s.end()
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
}

// again runs the code in the session's sandbox, which is there.
func (s *sandboxRig) again(ctx context.Context) error { return s.call(ctx, "session") }

// fresh runs it in a new sandbox.
func (s *sandboxRig) fresh(ctx context.Context) error { return s.call(ctx, "call") }

// call has the service execute the code, as core does.
func (s *sandboxRig) call(ctx context.Context, lifecycle string) error {
	s.calls++
	id := fmt.Sprintf("t1-p1-c%d", s.calls)
	args, err := json.Marshal(map[string]string{"code": printOne, "lifecycle": lifecycle})
	if err != nil {
		return err
	}
	now := time.Now()
	body, err := json.Marshal(executor.Request{
		Op: executor.OpRun, Agent: "main", Session: "bench", Call: id, Attempt: id, StartBy: now.Add(time.Minute),
		NotAfter: now.Add(2 * time.Minute),
		Tool:     &executor.ToolCall{Name: "python:execute", Args: args, Turn: "t1", Lease: "t1-p1-c1", Before: s.service},
	})
	if err != nil {
		return err
	}
	answers := make(chan executor.Answer, 16)
	failed := make(chan error, 1)
	cancel, err := s.caller.Send(ctx, subject.Executor(subject.Runner, s.service), string(s.service), nil, body,
		func(r bus.Reply) {
			var a executor.Answer
			err := r.Err
			switch {
			case r.NoResponders:
				err = errNobody
			case err == nil:
				err = json.Unmarshal(r.Data, &a)
			}
			if err != nil {
				select {
				case failed <- err:
				default:
				}
				return
			}
			select {
			case answers <- a:
			default:
			}
		})
	if err != nil {
		return err
	}
	defer cancel()
	for {
		select {
		case a := <-answers:
			if a.State.Final() {
				return printed(a)
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// printed wants the code to have printed its 1.
func printed(a executor.Answer) error {
	var out struct {
		Stdout string `json:"stdout"`
	}
	if a.Result == nil || !a.Result.Success || json.Unmarshal(a.Result.Data, &out) != nil || out.Stdout != "1\n" {
		text, _ := json.Marshal(a) // it was decoded from JSON
		return fmt.Errorf("the sandbox answered %s", text)
	}
	return nil
}

// refill measures how many sandboxes per second an empty pool creates.
func (s *sandboxRig) refill(ctx context.Context) (perSecond float64, err error) {
	p := pool.New(pool.Config{Driver: s.driver, Warm: refillTo, Max: 2 * refillTo, Logger: quiet})
	defer p.Close()
	begin := time.Now()
	p.Fill()
	for p.Stats().Warm < refillTo {
		if why := p.Stats().LastError; why != "" {
			return 0, errors.New(why)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return refillTo / time.Since(begin).Seconds(), nil
}

func hostPython(ctx context.Context) error {
	return output(exec.CommandContext(ctx, python(), "-c", printOne))
}

// python is the interpreter that a bare call is measured with: the system's, not a
// version manager's shim.
func python() string {
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		return "/usr/bin/python3"
	}
	return "python3"
}

// output wants the command to print 1.
func output(cmd *exec.Cmd) error {
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	if string(bytes.TrimSpace(out)) != "1" {
		return fmt.Errorf("%s: printed %q", strings.Join(cmd.Args, " "), out)
	}
	return nil
}

// skip are rows that say why nothing was measured.
func skip(why error, ids ...string) []Row {
	if why == nil {
		return nil
	}
	var out []Row
	for _, id := range ids {
		out = append(out, Row{ID: id, What: "not measured: " + why.Error(), Skipped: true})
	}
	return out
}

// atLeast makes a row whose budget is ours ≥ least.
func atLeast(id, what string, ours, least float64, unit string) Row {
	return Row{ID: id, What: what, Ours: ours, Unit: unit, Budget: fmt.Sprintf("≥ %g %s", least, unit), OK: ours >= least}
}
