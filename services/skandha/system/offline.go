package system

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
)

// Offline is the bus of a system that does not run, without any service and for this process alone. Its data
// directory is locked.
type Offline struct {
	*journal.Journal
	srv  *natsserver.Server
	lock *os.File
}

// StartOffline starts the bus of a data directory, which it makes if it is missing. The error is [ErrLocked] if
// a system runs there.
func StartOffline(ctx context.Context, data string, log *slog.Logger) (o *Offline, err error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("preparing the data directory: %w", err)
	}
	o = &Offline{}
	if o.lock, err = lock(data); err != nil {
		return nil, err
	}
	server, client, err := keyed(data)
	if err == nil {
		server.StoreDir, server.Logger = filepath.Join(data, busDir), log
		o.srv, err = natsserver.Start(server)
	}
	if err == nil {
		client.InProcess, client.Name, client.Logger = o.srv, "skandha", log
		o.Journal, err = journal.Connect(ctx, client)
	}
	if err != nil {
		o.Stop()
		return nil, err
	}
	return o, nil
}

// Stop stops the bus and unlocks the directory.
func (o *Offline) Stop() {
	if o.Journal != nil {
		o.Close()
	}
	if o.srv != nil {
		o.srv.Shutdown()
	}
	_ = o.lock.Close()
}

// State is a directory of the data directory that a system cannot make again, beside its bus.
type State struct{ Name, Path string }

// States returns these directories: files of the agent, guides, skills, and how far what tools and listeners send
// has got. A workspace that is elsewhere is named.
func States(data, workspace string) []State {
	if workspace == "" {
		workspace = filepath.Join(data, "workspace")
	}
	return []State{
		{"workspace", workspace},
		{"guides", filepath.Join(data, "guides")},
		{"skills", filepath.Join(data, "skills")},
		{"attempts", filepath.Join(data, "attempts")},
	}
}
