package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/toolrunner/mcp"
	"skandha.dev/services/toolrunner/tools"
)

// rig is a group of connections without a runner.
type rig struct {
	t       *testing.T
	group   *mcp.Group
	changed chan struct{}
	log     *buffer
	store   *store
}

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// store keeps artifacts.
type store struct {
	mu   sync.Mutex
	kept map[string][]byte
}

func (s *store) PutArtifact(_ context.Context, name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[name] = data
	return nil
}

func newRig(t *testing.T, servers map[string]mcp.Server) *rig {
	t.Helper()
	return newRigWith(t, servers, mcp.Options{StateDir: t.TempDir()})
}

func newRigWith(t *testing.T, servers map[string]mcp.Server, opt mcp.Options) *rig {
	t.Helper()
	if err := (mcp.Config{Servers: servers}).Validate(); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, changed: make(chan struct{}, 1), log: &buffer{}, store: &store{kept: map[string][]byte{}}}
	opt.Room, opt.Logger = 1<<20, slog.New(slog.NewTextHandler(r.log, nil))
	opt.Wants = func(string) bool { return true }
	if opt.Taken == nil {
		opt.Taken = func(string) bool { return false }
	}
	opt.Changed = func() {
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
	r.group = mcp.New(opt)
	r.group.Start(mcp.Config{Servers: servers})
	t.Cleanup(func() {
		r.group.Close()
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// until waits until the offer is as wanted.
func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	end := time.After(natstest.Patience)
	for !holds() {
		select {
		case <-r.changed:
		case <-end:
			r.t.Fatalf("%s: the offer is %v, the log\n%s", what, r.group.Names(), r.log)
		}
	}
}

func (r *rig) tool(name string) *mcp.Tool {
	r.t.Helper()
	r.until(name+" is offered", func() bool { return r.group.Get(name) != nil })
	return r.group.Get(name)
}

// call calls a tool; an error is that of a call that was not sent.
func (r *rig) call(ctx context.Context, name, args string) (tool.Result, error) {
	r.t.Helper()
	return r.tool(name).Call(ctx, r.with(args, nil))
}

func (r *rig) with(args string, progress func(string)) tools.Call {
	return tools.Call{
		Agent: "a", Session: "s", ID: "c", Attempt: "n", Args: json.RawMessage(args), Store: r.store, Progress: progress,
	}
}

// text is the text of a successful result.
func (r *rig) text(name, args string) string {
	r.t.Helper()
	res, err := r.call(r.t.Context(), name, args)
	var data struct{ Text string }
	if err = errors.Join(err, json.Unmarshal(res.Data, &data)); err != nil || !res.Success {
		r.t.Fatalf("%s %s: %v, %+v", name, args, err, res)
	}
	return data.Text
}

// logged waits until the log has a text.
func (r *rig) logged(text string) {
	r.t.Helper()
	natstest.Eventually(r.t, "the log says "+text, func() bool { return strings.Contains(r.log.String(), text) })
}
