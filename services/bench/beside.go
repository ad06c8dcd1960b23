package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"skandha.dev/services/bench/peers"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/natsserver"
)

// peerRole is this program as one of the engines that package peers measures.
const peerRole = "peer"

// Beside is B21: the turn of B4 and B6, always synced, beside the same turn in other engines. program has them; its
// argument is the name of one.
func Beside(ctx context.Context, o Options, program string) ([]peers.Result, peers.Options, error) {
	m := peers.Options{
		Rounds: o.n(20), Alone: 20, Sessions: sessions, Each: 5, Idle: 5 * time.Second, Progress: o.Progress,
	}
	names, err := exec.CommandContext(ctx, program).Output() //nolint:gosec // the user's choice
	if err != nil {
		return nil, m, fmt.Errorf("asking %s which engines it has: %w", program, err)
	}
	engines := []peers.Engine{{Name: "skandha", Argv: o.Spawn(peerRole)}}
	for _, name := range strings.Fields(string(names)) {
		engines = append(engines, peers.Engine{Name: name, Argv: []string{program, name}})
	}
	if err := os.Chmod(o.Dir, 0o711); err != nil { //nolint:gosec // PostgreSQL's user, which is not root, comes through
		return nil, m, err
	}
	for i := range engines {
		engines[i].Dir = filepath.Join(o.Dir, engines[i].Name)
		if err := os.Mkdir(engines[i].Dir, 0o711); err != nil { //nolint:gosec // as above
			return nil, m, err
		}
	}
	results, err := peers.Measure(ctx, engines, m)
	return results, m, err
}

// servePeer is our engine, in the working directory.
func servePeer(ctx context.Context) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	r, err := newRig(ctx, dir, natsserver.Always)
	if err != nil {
		return err
	}
	defer r.stop()
	b, err := r.connect(ctx, "talker")
	if err != nil {
		return err
	}
	defer b.Close()
	var opened atomic.Int64
	hello := peers.Hello{Version: buildinfo.String(), Durable: "JetStream, every message synced"}
	err = peers.Serve(ctx, hello, os.Stdin, os.Stdout, func(context.Context) (peers.Session, error) {
		return newTalker(b, fmt.Sprintf("s%d", opened.Add(1)))
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Turn says something and waits for the terminal event.
func (t *talker) Turn(ctx context.Context) error { return t.turn(ctx) }

// Close ends the subscriptions; the session stays.
func (t *talker) Close() { t.close() }
