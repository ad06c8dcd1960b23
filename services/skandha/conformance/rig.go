package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/registry"
	"skandha.dev/services/skandha/system"
)

// rig is the system that a plugin is tested against, and the suite's own connection to it.
type rig struct {
	dir    string
	sys    *system.System
	bus    *journal.Journal
	caller *bus.Caller
	view   *registry.View
	at     *url.URL
	ends   []func() // of substitutes for dependencies
}

// freeAddress returns a port of the loopback interface below those that the system assigns
// to connections: while the bus is down, one of those could take its port.
func freeAddress(ctx context.Context) string {
	var lc net.ListenConfig
	for range 1000 {
		at := net.JoinHostPort("127.0.0.1", strconv.Itoa(20_000+rand.IntN(12_000)))
		if l, err := lc.Listen(ctx, "tcp", at); err == nil {
			_ = l.Close()
			return at
		}
	}
	return "127.0.0.1:-1" // any that the system assigns
}

func startRig(ctx context.Context, o Options) (_ *rig, err error) {
	r := &rig{}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	if r.dir, err = os.MkdirTemp("", "skandha-conformance-"); err != nil {
		return nil, err
	}
	// No plugin is suspended: one that fails a check is tested by the next.
	cfg := filepath.Join(r.dir, "skandha.yaml")
	text := fmt.Sprintf("plugins: {lease: %v, suspend_after: 0}\n", o.Lease)
	if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
		return nil, err
	}
	r.sys, err = system.Start(ctx, system.Config{
		Data: filepath.Join(r.dir, "data"), ConfigFile: cfg, Sync: string(natsserver.Relaxed), Provider: "offline", Slots: 16,
		Log:  o.Log,
		NATS: freeAddress(ctx),
		Open: true, // a plugin's name is known only once it has registered
	})
	if err != nil {
		return nil, err
	}
	if r.at, err = url.Parse(r.sys.Join()); err != nil {
		return nil, err
	}
	if r.bus, err = r.sys.Connect(ctx, "conformance"); err != nil {
		return nil, err
	}
	if r.caller, err = r.bus.NewCaller(); err != nil {
		return nil, err
	}
	if r.view, err = registry.Watch(ctx, r.bus, o.Log); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *rig) stop() {
	for _, end := range r.ends {
		end()
	}
	if r.view != nil {
		r.view.Close()
	}
	if r.bus != nil {
		r.bus.Close()
	}
	if r.sys != nil {
		r.sys.Stop()
	}
	_ = os.RemoveAll(r.dir) // scratch
}

func (r *rig) busAddr() string { return r.at.Host }

// join returns the SKANDHA_NATS of a process behind a tap.
func (r *rig) join(tap string) string {
	u := *r.at
	u.Host = tap
	return u.String()
}

// standIn registers a plugin that does nothing, because the tested one
// depends on it.
func (r *rig) standIn(o Options, name subject.Plugin) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m := plugin.Manifest{Name: name, Version: "0.0.0", Description: "replaces a dependency"}
		if err := plugin.Serve(ctx, m, nil, plugin.WithBus(r.bus.Bus), plugin.WithLogger(o.Log)); err != nil {
			o.Log.Warn("substitute plugin ended", "plugin", name, "error", err)
		}
	}()
	r.ends = append(r.ends, func() {
		cancel()
		<-done
	})
}

// lease finds the lease of a replica that counts.
func (r *rig) lease(name subject.Plugin, i subject.Instance) (state plugin.LeaseState, there bool) {
	p := r.view.Snapshot().Get(name)
	if p == nil {
		return "", false
	}
	for _, l := range p.Instances {
		if l.Instance == i {
			return p.State, true
		}
	}
	return p.State, false
}

// awaitSnapshot waits until the registry satisfies the condition.
func (r *rig) awaitSnapshot(ctx context.Context, within time.Duration, wanted func(*registry.Snapshot) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ok := make(chan struct{}, 1)
	forget := r.view.OnChange(func(s *registry.Snapshot) {
		if wanted(s) {
			select {
			case ok <- struct{}{}:
			default:
			}
		}
	})
	defer forget()
	select {
	case <-ok:
		return true
	case <-ctx.Done():
		return wanted(r.view.Snapshot())
	}
}
