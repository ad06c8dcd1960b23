package toolrunner

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/registry"
)

// snapshot is a registry in which the plugins are active.
func snapshot(plugins ...plugin.Manifest) *registry.Snapshot {
	c := registry.NewContent()
	for _, m := range plugins {
		c.Records[m.Name] = &registry.StoredRecord{Record: registry.Record{Manifest: m, Hash: m.Hash()}}
		c.Leases[m.Name] = map[subject.Instance]*registry.StoredLease{
			"i": {LeaseRecord: registry.LeaseRecord{Instance: "i", Hash: m.Hash()}, Plugin: m.Name},
		}
	}
	return registry.Compute(c)
}

func manifest(args string, tools ...tool.Spec) plugin.Manifest {
	return plugin.Manifest{Name: "p", Version: "1.0.0", Tools: append([]tool.Spec{
		{Name: "p:x", Description: "d", Args: json.RawMessage(args)},
	}, tools...)}
}

func startRemotes(own ...tool.Spec) (r *remotes, log *bytes.Buffer) {
	log = &bytes.Buffer{}
	return newRemotes(Config{}, own, 1<<20, nil, newOffering(own), slog.New(slog.NewTextHandler(log, nil))), log
}

// One snapshot may replace a plugin by another version, or one plugin by another.
func TestATakeoverWithinOneSnapshot(t *testing.T) {
	r, _ := startRemotes()
	r.refresh(snapshot(manifest(`{"type":"object"}`)))
	old := r.get("p:x")
	<-r.offers.out.Updates()
	v2 := manifest(`{"type":"object","required":["y"]}`)
	r.refresh(snapshot(v2))
	now := r.get("p:x")
	if now == old || now.hash != v2.Hash() || !strings.Contains(string(now.spec.Args), "required") {
		t.Fatalf("got %+v", now)
	}
	if o := <-r.offers.out.Updates(); len(o.Tools) != 1 || !strings.Contains(string(o.Tools[0].Args), "required") {
		t.Fatalf("offered is %+v", o)
	}
	heir := v2
	heir.Name = "q"
	r.refresh(snapshot(heir))
	if now := r.get("p:x"); now.plugin != "q" || now.spec.Plugin != "q" {
		t.Fatalf("got %+v", now)
	}
	r.refresh(snapshot())
	if r.get("p:x") != nil {
		t.Fatal("it is still there")
	}
}

func TestNoNewsAreNotAnnounced(t *testing.T) {
	r, _ := startRemotes()
	r.refresh(snapshot(manifest(`{"type":"object"}`)))
	<-r.offers.out.Updates()
	was := r.get("p:x")
	r.refresh(snapshot(manifest(`{"type":"object"}`), plugin.Manifest{Name: "other", Version: "1.0.0"}))
	if r.get("p:x") != was {
		t.Error("it was compiled once more")
	}
	select {
	case o := <-r.offers.out.Updates():
		t.Errorf("offered is %+v", o)
	default:
	}
}

func TestWhatIsNotOfferedIsSaidOnce(t *testing.T) {
	r, log := startRemotes(tool.Spec{Name: "own"})
	m := manifest(`{"type":"object"}`,
		tool.Spec{Name: "p:gpu", Description: "d", Args: json.RawMessage(`{"type":"object"}`), Pool: "gpu"},
		tool.Spec{Name: "own", Description: "d", Args: json.RawMessage(`{"type":"object"}`)},
		tool.Spec{Name: "p:broken", Description: "d", Args: json.RawMessage(`{"type":"nothing"}`)},
		tool.Spec{Name: "p:" + strings.Repeat("x", 100), Description: "d", Args: json.RawMessage(`{"type":"object"}`)},
		tool.Spec{Name: "p:huge", Description: strings.Repeat("x", 1<<20), Args: json.RawMessage(`{"type":"object"}`)},
	)
	for range 3 {
		r.refresh(snapshot(m))
	}
	said := log.String()
	for _, want := range []string{`pool \"gpu\"`, "the name is taken", "tool=p:broken", "too long", "no room"} {
		if n := strings.Count(said, want); n != 1 {
			t.Errorf("%s: said %d times", want, n)
		}
	}
	if names := r.names(); len(names) != 1 || names[0] != "p:x" {
		t.Errorf("offered are %q", names)
	}
}
