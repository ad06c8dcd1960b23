package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"

	sdk "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/ingress"
	restateserver "github.com/restatedev/sdk-go/server"

	peers "skandha.dev/deploy/bench/peers/protocol"
)

// restate is Restate's server, as a child, and a service and a client in this process: a session is a virtual
// object, and a turn is a call of its handler with three journalled steps.
func restate(ctx context.Context, dir string) (peers.Hello, open, func(), error) {
	none := func() {}
	bin, err := exec.LookPath("restate-server")
	if err != nil {
		return missing("no `restate-server` in PATH (npm: @restatedev/restate-server)")
	}
	free, err := ports(ctx, 4)
	if err != nil {
		return peers.Hello{}, nil, none, err
	}
	local := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", free[i]) }
	//nolint:gosec // found in PATH
	cmd := exec.CommandContext(ctx, bin, "--base-dir", filepath.Join(dir, "data"), "--no-logo", "--listen-mode", "tcp",
		"--bind-address", local(0), "--advertised-address", "http://"+local(0)+"/", "--node-name", "bench")
	cmd.Env = append(os.Environ(), "RESTATE_INGRESS__BIND_ADDRESS="+local(1), "RESTATE_ADMIN__BIND_ADDRESS="+local(2),
		"RESTATE_DISABLE_TELEMETRY=true", "RUST_LOG=error")
	s, err := serve(filepath.Join(dir, "restate.log"), cmd)
	if err != nil {
		return peers.Hello{}, nil, none, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := func() { cancel(); s.stop(syscall.SIGTERM) }
	turns := sdk.NewObject("Turns").Handler("turn", sdk.NewObjectHandler(restateTurn))
	go func() {
		err := restateserver.NewRestate().WithLogger(slog.DiscardHandler, true).Bind(turns).Start(ctx, local(3))
		if err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "restate's service:", err)
		}
	}()
	if err = s.await(ctx, accepts(local(3))); err == nil {
		err = s.await(ctx, func(ctx context.Context) error { return restateDeploy(ctx, local(2), local(3)) })
	}
	if err != nil {
		stop()
		return peers.Hello{}, nil, none, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 256 // so that sessions do not connect for each turn
	client := ingress.NewClient("http://"+local(1), ingress.WithHttpClient(&http.Client{Transport: transport}))
	var opened atomic.Int64
	hello := peers.Hello{
		Version: release(ctx, bin, "--version") + ", SDK " + version("github.com/restatedev/sdk-go"),
		Durable: "its log in RocksDB, synced (the default)",
	}
	return hello, func(context.Context) (peers.Session, error) {
		call := ingress.Object[string, step](client, "Turns", fmt.Sprintf("s%d", opened.Add(1)), "turn")
		return always(func(ctx context.Context) error {
			end, err := call.Request(ctx, input)
			if err != nil {
				return err
			}
			return check(end)
		}), nil
	}, stop, nil
}

func restateTurn(ctx sdk.ObjectContext, text string) (step, error) {
	wanted, err := sdk.Run(ctx, func(sdk.RunContext) (step, error) { return think(text, "") })
	if err != nil {
		return step{}, err
	}
	result, err := sdk.Run(ctx, func(sdk.RunContext) (string, error) { return noop(wanted.N) })
	if err != nil {
		return step{}, err
	}
	end, err := sdk.Run(ctx, func(sdk.RunContext) (step, error) { return think(text, result) })
	if err != nil {
		return step{}, err
	}
	return end, nil
}

// restateDeploy tells the server where the service is.
func restateDeploy(ctx context.Context, admin, service string) error {
	body := bytes.NewBufferString(`{"uri":"http://` + service + `","force":true}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+admin+"/deployments", body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode/100 != 2 {
		why, _ := io.ReadAll(io.LimitReader(res.Body, 300)) // what arrives of it is enough
		return fmt.Errorf("POST /deployments: %s: %s", res.Status, why)
	}
	return nil
}
