package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	sdk "github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5"

	peers "skandha.dev/deploy/bench/peers/protocol"
)

// dbos is DBOS in this process on a separate PostgreSQL, as a child: a turn is a workflow of three steps.
func dbos(ctx context.Context, dir string) (peers.Hello, open, func(), error) {
	none := func() {}
	bin := postgresBin()
	if bin == "" {
		return missing("no PostgreSQL server (Debian: postgresql)")
	}
	url, s, err := startPostgres(ctx, bin, dir)
	if err != nil {
		return peers.Hello{}, nil, none, err
	}
	stop := func() { s.stop(syscall.SIGINT) } // PostgreSQL's fast shutdown
	d, err := sdk.NewContext(ctx, sdk.Config{
		AppName: "bench", DatabaseURL: url, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		sdk.RegisterWorkflow(d, dbosTurn)
		err = sdk.Launch(d)
	}
	if err != nil {
		stop()
		return peers.Hello{}, nil, none, err
	}
	turn := func(context.Context) error {
		h, err := sdk.RunWorkflow(d, dbosTurn, input)
		if err != nil {
			return err
		}
		end, err := h.GetResult()
		if err != nil {
			return err
		}
		return check(end)
	}
	postgres := release(ctx, filepath.Join(bin, "postgres"), "-V")
	hello := peers.Hello{
		Version: version("github.com/dbos-inc/dbos-transact-golang") + ", PostgreSQL " + postgres,
		Durable: "PostgreSQL, fsync and synchronous_commit on (the default)",
	}
	return hello, func(context.Context) (peers.Session, error) { return always(turn), nil }, func() {
		_ = sdk.Shutdown(d, 5*time.Second) // the database goes next
		stop()
	}, nil
}

func dbosTurn(ctx sdk.Context, text string) (step, error) {
	wanted, err := sdk.RunAsStep(ctx, func(context.Context) (step, error) { return think(text, "") })
	if err != nil {
		return step{}, err
	}
	result, err := sdk.RunAsStep(ctx, func(context.Context) (string, error) { return noop(wanted.N) })
	if err != nil {
		return step{}, err
	}
	return sdk.RunAsStep(ctx, func(context.Context) (step, error) { return think(text, result) })
}

// postgresBin is where PostgreSQL's programs are: in PATH, or where Debian has the newest.
func postgresBin() string {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(initdb)
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return ""
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1])
}

// startPostgres makes a database in a directory and serves it. PostgreSQL refuses to run as root, so root starts it
// as the user postgres.
func startPostgres(ctx context.Context, bin, dir string) (url string, _ *server, err error) {
	as, owner := (*syscall.SysProcAttr)(nil), ""
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return "", nil, err
	}
	if os.Getuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return "", nil, err
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return "", nil, err
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			return "", nil, err
		}
		if err := os.Chown(data, uid, gid); err != nil {
			return "", nil, err
		}
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		owner = u.Username
	}
	//nolint:gosec // found in PATH
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "bench", "-A", "trust")
	initdb.SysProcAttr, initdb.Dir = as, data
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("initdb as %q: %w: %s", owner, err, out)
	}
	free, err := ports(ctx, 1)
	if err != nil {
		return "", nil, err
	}
	//nolint:gosec // as above
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "-D", data, "-h", "127.0.0.1",
		"-p", strconv.Itoa(free[0]), "-c", "unix_socket_directories=")
	cmd.SysProcAttr, cmd.Dir = as, data
	s, err := serve(filepath.Join(dir, "postgres.log"), cmd)
	if err != nil {
		return "", nil, err
	}
	url = fmt.Sprintf("postgres://bench@127.0.0.1:%d/postgres?sslmode=disable", free[0])
	return url, s, s.await(ctx, func(ctx context.Context) error {
		c, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		return c.Close(ctx)
	})
}
