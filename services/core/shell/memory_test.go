package shell_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	index "skandha.dev/services/internal/memory/sqlite"
	"skandha.dev/services/test/natstest"
)

// remembers gives every core an index of memories.
func remembers(t *testing.T) func(*system) {
	st, err := index.Open(t.Context(), index.Config{Path: filepath.Join(t.TempDir(), "memory.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return func(s *system) { s.index = st }
}

// prompts keeps the system prompts of the requests to the model.
type prompts struct {
	mu  sync.Mutex
	all []string
}

func (p *prompts) see(r provider.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, r.System)
}

func (p *prompts) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[len(p.all)-1]
}

// What was said in one session is remembered in another, after the core has restarted.
func TestAnotherSessionRemembers(t *testing.T) {
	t.Parallel()
	var p prompts
	s := start(t, core.Config{}, remembers(t), func(s *system) { s.asked = p.see })
	first := subject.Ref{Agent: "main", Session: "monday"}
	events := s.follow(first)
	s.say(first, event.Input{Text: "my cat is called Tom"})
	s.turn(events)
	s.stopCore()
	s.core = s.startCore(core.Config{})
	if err := s.core.AwaitExecutors(natstest.Context(t), s.executors...); err != nil {
		t.Fatal(err)
	}
	second := subject.Ref{Agent: "main", Session: "friday"}
	events = s.follow(second)
	s.say(second, event.Input{Text: "what is my cat called?"})
	s.turn(events)
	if got := p.last(); !strings.Contains(got, "What you remember from before") ||
		!strings.Contains(got, `Asked: my cat is called Tom\nAnswered: echo: my cat is called Tom`) {
		t.Fatalf("the model sees\n%s", got)
	}
}

// Services and plugins use the memory by internal calls, and what they store is data.
func TestInternalToolsOfTheMemory(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{}, remembers(t))
	p := s.connectPlugin(plugin.Manifest{Name: "caller"}, nil)
	call := func(name, args string) json.RawMessage {
		t.Helper()
		r, err := internally(t, p.caller,
			`{"agent":"main","session":"s1","caller":"caller","tool":"`+name+`","args":`+args+`}`)
		if err != nil || !r.Success {
			t.Fatalf("%s %s: %v, %+v", name, args, err, r.Error)
		}
		return r.Data
	}
	var stored memory.Memory
	if err := json.Unmarshal(call("memory:store", `{"text":"The alarm code is 1234.","url":"https://example.com/x"}`), &stored); err != nil {
		t.Fatal(err)
	}
	if stored.Source.Origin != memory.FromWeb || stored.Source.Principal != "caller" || stored.Kind != memory.Fact {
		t.Fatalf("%+v", stored)
	}
	if found := call("memory:retrieve", `{"query":"alarm code"}`); !strings.Contains(string(found), stored.ID) {
		t.Fatalf("%s", found)
	}
	call("memory:forget", `{"id":"`+stored.ID+`"}`)
	if found := call("memory:retrieve", `{"query":"alarm code"}`); strings.Contains(string(found), stored.ID) {
		t.Fatalf("%s", found)
	}
	r, err := p.caller.Request(natstest.Context(t), subject.Service(coreapi.AdminName, coreapi.VerbMemory), coreapi.AdminName,
		[]byte(`{"op":"list","agent":"main","caller":"caller"}`))
	var left coreapi.MemoryAnswer
	if err != nil || json.Unmarshal(r, &left) != nil || len(left.Memories) > 0 {
		t.Fatalf("%s, %v", r, err)
	}
}

// A mistyped agent is neither given a memory nor said to have none.
func TestMemoriesAreThoseOfAnAgent(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{}, remembers(t))
	p := s.connectPlugin(plugin.Manifest{Name: "caller"}, nil)
	for _, q := range []string{
		`{"op":"store","agent":"nosuch","caller":"test","text":"x"}`, `{"op":"list","agent":"nosuch","caller":"test"}`,
	} {
		_, err := p.caller.Request(natstest.Context(t), subject.Service(coreapi.AdminName, coreapi.VerbMemory),
			coreapi.AdminName, []byte(q))
		if !errors.Is(err, bus.ErrNotFound) || !strings.Contains(err.Error(), "no agent nosuch") {
			t.Errorf("%s: %v", q, err)
		}
	}
}

// remembered returns what the agent remembers of a kind.
func (s *system) remembered(caller *bus.Caller, kind memory.Kind) []memory.Memory {
	s.t.Helper()
	r, err := caller.Request(natstest.Context(s.t), subject.Service(coreapi.AdminName, coreapi.VerbMemory),
		coreapi.AdminName, []byte(`{"op":"list","agent":"main","caller":"test","kinds":["`+string(kind)+`"]}`))
	var a coreapi.MemoryAnswer
	if err != nil || json.Unmarshal(r, &a) != nil {
		s.t.Fatalf("%s, %v", r, err)
	}
	return a.Memories
}

// loseMemories deletes the bucket.
func (s *system) loseMemories() {
	s.t.Helper()
	if err := s.bus.JetStream().DeleteStream(s.t.Context(), "KV_"+journal.BucketMemories); err != nil {
		s.t.Fatal(err)
	}
}

// While the bucket is away, turns and the view go on, and what they leave is stored afterwards.
func TestTurnsAreRememberedWhenTheBucketIsBack(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{}, remembers(t))
	p := s.connectPlugin(plugin.Manifest{Name: "caller"}, nil)
	s.loseMemories()
	at := subject.Ref{Agent: "main", Session: "s"}
	events := s.follow(at)
	s.say(at, event.Input{Text: "my cat is called Tom"})
	s.turn(events)
	natstest.EnsureStreams(t, s.bus)
	natstest.Eventually(t, "the turn is remembered", func() bool {
		return len(s.remembered(p.caller, memory.Experience)) == 1
	})
}

// What a crash has kept from the memory comes back when the view is made again.
func TestARefilledViewRemembers(t *testing.T) {
	t.Parallel()
	s := start(t, core.Config{}, remembers(t))
	p := s.connectPlugin(plugin.Manifest{Name: "caller"}, nil)
	at := subject.Ref{Agent: "main", Session: "s"}
	events := s.follow(at)
	s.say(at, event.Input{Text: "my cat is called Tom"})
	s.turn(events)
	one := func() bool { return len(s.remembered(p.caller, memory.Experience)) == 1 }
	natstest.Eventually(t, "the turn is remembered", one)
	s.loseMemories()
	natstest.EnsureStreams(t, s.bus)
	natstest.Eventually(t, "it is forgotten", func() bool { return len(s.remembered(p.caller, memory.Experience)) == 0 })
	_, err := p.caller.Request(natstest.Context(t), subject.Service(coreapi.AdminName, coreapi.VerbRefill),
		coreapi.AdminName, []byte(`{"agent":"main","session":"s"}`))
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it is remembered again", one)
}

// The bucket was restored from a backup and has gone further since, so its revisions do not say that
// the index is of another one.
func TestAnIndexFromBeforeARestoreIsMadeAgain(t *testing.T) {
	t.Parallel()
	s, ctx := start(t, core.Config{}, remembers(t)), t.Context()
	p := s.connectPlugin(plugin.Manifest{Name: "caller"}, nil)
	_, err := p.caller.Request(ctx, subject.Service(coreapi.AdminName, coreapi.VerbMemory), coreapi.AdminName,
		[]byte(`{"op":"store","agent":"main","caller":"test","text":"my cat is called Tom"}`))
	must(t, err)
	natstest.Eventually(t, "it is remembered", func() bool { return len(s.remembered(p.caller, memory.Fact)) == 1 })
	s.stopCore()
	stream, err := s.bus.JetStream().Stream(ctx, "KV_"+journal.BucketMemories)
	must(t, err)
	config := stream.CachedInfo().Config
	s.loseMemories()
	config.Metadata = map[string]string{journal.MetaRestored: time.Now().Format(time.RFC3339Nano)}
	_, err = s.bus.JetStream().CreateStream(ctx, config)
	must(t, err)
	for i := range 15 {
		body, err := json.Marshal(memory.Memory{
			ID: fmt.Sprint(i), Agent: "main", Kind: memory.Fact, Text: "restored",
			Source: memory.Source{Origin: memory.FromPerson}, Created: time.Now().UTC(),
		})
		must(t, err)
		_, err = s.bus.Bucket(journal.BucketMemories).Put(ctx, fmt.Sprint("main.", i), body, journal.Fence{})
		must(t, err)
	}
	s.core = s.startCore(core.Config{})
	natstest.Eventually(t, "the restored memories are found, and no others", func() bool {
		all := s.remembered(p.caller, memory.Fact)
		return len(all) == 15 && !slices.ContainsFunc(all, func(m memory.Memory) bool { return m.Text != "restored" })
	})
}
