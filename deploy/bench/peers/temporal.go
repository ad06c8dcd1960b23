package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	peers "skandha.dev/deploy/bench/peers/protocol"
)

const temporalQueue = "turns"

// temporalLimits lifts the dev server's limits: its queues are polled 20 times a second at most by default, and it
// serves some thousand requests.
var temporalLimits = []string{
	"history.transferProcessorMaxPollRPS", "history.timerProcessorMaxPollRPS",
	"history.visibilityProcessorMaxPollRPS", "history.rps", "matching.rps", "frontend.rps", "frontend.namespaceRPS",
	"frontend.namespaceCount", "frontend.persistenceMaxQPS", "history.persistenceMaxQPS", "matching.persistenceMaxQPS",
}

// temporal is Temporal's dev server on SQLite, as a child, and a worker and a client in this process: a turn is a
// workflow of three activities.
func temporal(ctx context.Context, dir string) (peers.Hello, open, func(), error) {
	none := func() {}
	bin, err := exec.LookPath("temporal")
	if err != nil {
		return missing("no `temporal` (Temporal's command line) in PATH")
	}
	free, err := ports(ctx, 2)
	if err != nil {
		return peers.Hello{}, nil, none, err
	}
	argv := []string{
		"server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", strconv.Itoa(free[0]),
		"--http-port", strconv.Itoa(free[1]), "--db-filename", filepath.Join(dir, "temporal.db"),
		"--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=full", "--log-level", "error",
	}
	for _, l := range temporalLimits {
		argv = append(argv, "--dynamic-config-value", l+"=1000000")
	}
	cmd := exec.CommandContext(ctx, bin, argv...) //nolint:gosec // found in PATH
	s, err := serve(filepath.Join(dir, "temporal.log"), cmd)
	if err != nil {
		return peers.Hello{}, nil, none, err
	}
	stop := func() { s.stop(syscall.SIGTERM) }
	addr := fmt.Sprintf("127.0.0.1:%d", free[0])
	var c client.Client
	err = s.await(ctx, func(ctx context.Context) (err error) {
		c, err = client.DialContext(ctx, client.Options{
			HostPort: addr, Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		})
		return err
	})
	if err != nil {
		stop()
		return peers.Hello{}, nil, none, err
	}
	w := worker.New(c, temporalQueue, worker.Options{
		MaxConcurrentWorkflowTaskPollers: 16, MaxConcurrentActivityTaskPollers: 16,
	})
	w.RegisterWorkflow(temporalTurn)
	w.RegisterActivity(temporalThink)
	w.RegisterActivity(temporalTool)
	if err := w.Start(); err != nil {
		stop()
		return peers.Hello{}, nil, none, err
	}
	turn := func(ctx context.Context) error {
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			TaskQueue: temporalQueue, EnableEagerStart: true,
		}, temporalTurn, input)
		if err != nil {
			return err
		}
		var end step
		if err := run.Get(ctx, &end); err != nil {
			return err
		}
		return check(end)
	}
	hello := peers.Hello{
		Version: release(ctx, bin, "--version") + ", SDK " + version("go.temporal.io/sdk"),
		Durable: "dev server, SQLite, WAL, synchronous=FULL, limits lifted",
	}
	return hello, func(context.Context) (peers.Session, error) { return always(turn), nil },
		func() { w.Stop(); c.Close(); stop() }, nil
}

func temporalTurn(ctx workflow.Context, text string) (step, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	var wanted, end step
	if err := workflow.ExecuteActivity(ctx, temporalThink, text, "").Get(ctx, &wanted); err != nil {
		return step{}, err
	}
	var result string
	if err := workflow.ExecuteActivity(ctx, temporalTool, wanted.N).Get(ctx, &result); err != nil {
		return step{}, err
	}
	err := workflow.ExecuteActivity(ctx, temporalThink, text, result).Get(ctx, &end)
	return end, err
}

func temporalThink(_ context.Context, text, result string) (step, error) { return think(text, result) }

func temporalTool(_ context.Context, n int) (string, error) { return noop(n) }
