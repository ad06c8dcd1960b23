package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/skandha/system"
)

// errNoSystem means that no system runs where the flags point.
var errNoSystem = errors.New("no system runs")

// localData is the data directory of `make run`, in the working directory or a parent;
// it contains that of `make run-services`.
const localData = ".data"

// localDirs returns the data directories in the working directory, or else in the
// nearest parent that has any. It skips those that other users can write: they could
// name any bus.
func localDirs() []string {
	for up := ""; ; up = filepath.Join(up, "..") {
		if dir := filepath.Join(up, localData); isOurs(dir, 0o022) {
			return []string{dir, filepath.Join(dir, "services")}
		}
		if here, err := filepath.Abs(up); err != nil || here == filepath.Dir(here) {
			return nil
		}
	}
}

// defaultData returns the default data directory: one among the user's data, or the one
// that earlier versions made among the user's configuration, if it exists.
func defaultData() string {
	data, old := userData(), oldData()
	if old != "" && !holdsLog(data) && holdsLog(old) {
		return old
	}
	return data
}

// holdsLog reports whether a system, or skandha server, has run on dir.
func holdsLog(dir string) bool {
	return isDir(filepath.Join(dir, "nats")) || isDir(filepath.Join(dir, "jetstream"))
}

// isOurs reports whether this user owns dir and others have none of these rights.
func isOurs(dir string, rights fs.FileMode) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&rights != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}

func userData() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "skandha")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ".skandha"
	}
	switch runtime.GOOS {
	case "darwin":
		return filepath.Join(home, "Library", "Application Support", "skandha")
	case "windows":
		return filepath.Join(cmp.Or(os.Getenv("LocalAppData"), home), "skandha")
	}
	return filepath.Join(home, ".local", "share", "skandha")
}

func oldData() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "skandha")
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// find resolves which system the flags mean. The command line takes precedence over the
// environment, and a system that runs on the environment's data directory over SKANDHA_NATS,
// which may be stale. Without either, it selects a system that runs in the working
// directory, in a parent or on the default directory, or else ./.data. The commands up and
// server, which always start a system, use the default directory.
func (g *globals) find(command string) {
	switch {
	case g.given["nats"]:
	case g.given["data"]:
		g.NATS = ""
	case g.Data != "":
		if _, err := system.Running(g.Data); err == nil {
			g.NATS = ""
		}
	case g.NATS == "":
		g.Data = defaultData()
		if command == "up" || command == "server" {
			break
		}
		runs := running(append(localDirs(), g.Data)...)
		if len(runs) > 0 {
			g.Data = runs[0]
			for _, other := range runs[1:] {
				fmt.Fprintf(os.Stderr, "skandha: using the system on %s; another runs on %s; for that one add --data %[2]s\n",
					runs[0], shellQuote(other))
			}
			break
		}
		// A directory that came with a checkout or an archive is open to others.
		rest := func(dir string) bool { return isOurs(dir, 0o077) && holdsLog(dir) }
		if local := localDirs(); len(local) > 0 && rest(local[0]) {
			g.Data = local[0]
		}
	}
	g.Data = cmp.Or(g.Data, defaultData())
	if old := oldData(); g.NATS == "" && g.Data == old && old != userData() {
		fmt.Fprintf(os.Stderr, "skandha: the data is in %s, where earlier versions kept it; to move it: mv %[1]s %s\n",
			shellQuote(old), shellQuote(userData()))
	}
}

// where returns the flag that selects the same data directory; it is empty if none is
// needed.
func (g *globals) where() string {
	if g.NATS != "" || g.Data == defaultData() {
		return ""
	}
	return "--data " + shellQuote(g.Data)
}

// running returns those of the directories on which a system runs.
func running(dirs ...string) []string {
	return slices.DeleteFunc(dirs, func(dir string) bool {
		_, err := system.Running(dir)
		return err != nil
	})
}

// connectRunning connects to a running system. If there is none, the error wraps
// errNoSystem and says where one runs or how to start one.
func (g *globals) connectRunning(ctx context.Context) (*connection, error) {
	if g.NATS != "" {
		return g.dial(ctx, g.NATS, g.Token, "the system on "+telemetry.Redact(g.NATS))
	}
	run, err := system.Running(g.Data)
	if errors.Is(err, system.ErrLocked) {
		run, err = system.AwaitRunning(ctx, g.Data)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, g.noSystem()
	}
	if err != nil {
		return nil, err
	}
	return g.dial(ctx, run.URL, run.Token, fmt.Sprintf("the system that process %d runs on %s", run.PID, g.Data))
}

func (g *globals) noSystem() error {
	for _, dir := range running(append(localDirs(), defaultData())...) {
		return fmt.Errorf("%w on %s; one runs on %s; add --data %[3]s", errNoSystem, g.Data, shellQuote(dir))
	}
	return fmt.Errorf("%w on %s; start one (make run, or %[3]s up --data %[2]s), or name your data directory with --data",
		errNoSystem, shellQuote(g.Data), buildinfo.Command())
}
