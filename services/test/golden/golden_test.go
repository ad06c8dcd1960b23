package golden_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/decide"
	"skandha.dev/services/internal/backup"
	"skandha.dev/services/internal/client"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/internal/timeline"
	"skandha.dev/services/internal/turn"
	"skandha.dev/services/provider"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/scripted"
)

var update = flag.Bool("update", false, "record the log of this release, under its fold version, again")

// config makes the decisions that the logs have: a tool that is asked about, one that is denied.
const config = `
agents: {main: {confirm: 5s}}
retention: {turns: 5, every: 1s, undelete: 876000h}
policy:
  - {tool: "time:now", principal: asker, effect: confirm, reason: "it is asked about"}
  - {tool: "http:*", effect: deny, reason: "no network here"}
`

// sessions are what the log has. A line that begins with a slash is a command, and one with "yes " or "no " is an input whose call
// a person approves or refuses; "leave " is left waiting.
var sessions = map[subject.Session][]string{
	"plain": {
		"hello", `call time:now {}`, `call2 time:now {} ; math:evaluate {"expression":"6*7"}`, "unknown tool", "garbage",
		`then file_system:write_file {"path":"a.txt","content":"ünïcödé 漢字"} ; file_system:read_file {"path":"a.txt"}`,
		`chain math:evaluate {"expression":"1+1"} ; math:evaluate {"expression":"2+2"}`, "spend 100 tokens", "fail bad_request",
		`call http:request {"url":"http://127.0.0.1:1/"}`, `calls 5 math:evaluate {"expression":"1+2"}`, "answer in json",
	},
	"commands":  {"hello", "/help", "/tools", "/reset", "after the reset", "/replay", "/provider", "/unknown", "/pause", "/resume"},
	"asked":     {`yes call time:now {}`, `no call time:now {}`, "hello"},
	"waiting":   {"hello", `leave call time:now {}`},
	"remembers": {"what do you know of the boiler?"},
	"scheduled": {`yes call schedule:create {"name":"daily","every":"24h","text":"look after the boiler"}`},
	"deleted":   {"hello", "/delete"},
	"back":      {"hello", "/delete", "/undelete", "hello again"},
	"long":      strings.Split(strings.TrimSuffix(strings.Repeat(`call math:evaluate {"expression":"3*3"}`+"\n", 25), "\n"), "\n"),
}

// fact is what somebody had the agent remember.
const fact = "the boiler is from 1987"

// expected is what was so when a log was recorded, by session.
type expected map[subject.Session]*struct {
	Digest string             `json:"digest"` // of the state, as that release folded it
	Turns  []timeline.TurnRow `json:"turns"`
}

// rig is a system of this release.
type rig struct {
	*system.System
	t      *testing.T
	client *client.Client
	data   string
}

func start(t *testing.T, data string, settle time.Duration) *rig {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := system.Start(natstest.Context(t), system.Config{
		Data: data, ConfigFile: file, Sync: "relaxed", Log: natstest.Logger(t), Models: []provider.Adapter{scripted.New()}, Settle: settle,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	r := &rig{System: s, t: t, data: data}
	if r.client, err = client.New(natstest.Join(t, s, "test"), "test", natstest.Logger(t)); err != nil {
		t.Fatal(err)
	}
	return r
}

// say sends a line, and waits for its end, or for the request that is left.
func (r *rig) say(session subject.Session, line string) (end turn.End) {
	r.t.Helper()
	ref, ctx := subject.Ref{Agent: "main", Session: session}, natstest.Context(r.t)
	from, err := r.client.Follow(ctx, ref)
	if err != nil {
		r.t.Fatal(err)
	}
	c, mode := r.client, ""
	if before, rest, ok := strings.Cut(line, " "); ok && (before == "yes" || before == "no" || before == "leave") {
		c, mode, line = r.client.As("asker"), before, rest
	}
	var seq uint64
	if name, ok := strings.CutPrefix(line, "/"); ok {
		seq, err = c.Command(ctx, ref, name)
	} else {
		seq, err = c.Say(ctx, ref, event.Input{Text: line})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	in := turn.Input{Sequence: seq}
	left := errors.New("left")
	end, err = in.Follow(turn.Items(ctx, from), func(i follow.Item) (err error) {
		_ = event.Visitor{ToolCallRequest: func(q event.ToolCallRequest) { // deltas are no events
			if err = left; mode != "leave" {
				err = r.client.As("ui-ada").Confirm(ctx, ref, q, mode == "yes", "so be it")
			}
		}}.Visit(i.Event)
		return err
	})
	if err != nil && !errors.Is(err, left) {
		r.t.Fatalf("%q in %s: %v", line, session, err)
	}
	return end
}

// is returns what is so now.
func (r *rig) is(session subject.Session) (digest string, turns []timeline.TurnRow) {
	r.t.Helper()
	ref, ctx := subject.Ref{Agent: "main", Session: session}, natstest.Context(r.t)
	var info struct{ Digest string }
	if err := r.client.Ask(ctx, coreapi.VerbSession, ref, &info); err != nil {
		r.t.Fatal(err)
	}
	w, at, _ := timeline.NewWalk(100, "")
	for c, err := range turn.Back(ctx, r.client.Journal, ref, at) {
		if errors.Is(err, bus.ErrNotFound) {
			break // the rest has left the log
		}
		if err != nil {
			r.t.Fatal(err)
		}
		w.Take(c)
	}
	return info.Digest, w.Page(0, "").Turns
}

func record(t *testing.T, file string) {
	r := start(t, t.TempDir(), time.Millisecond)
	want := expected{}
	names := slices.Sorted(maps.Keys(sessions)) // the last one waits, but not for long
	for _, session := range names {
		for _, line := range sessions[session] {
			r.say(session, line)
		}
	}
	natstest.Eventually(t, "turns have left the log", func() bool {
		_, turns := r.is("long")
		return len(turns) < len(sessions["long"])/2
	})
	for _, session := range names {
		want[session] = &struct {
			Digest string             `json:"digest"`
			Turns  []timeline.TurnRow `json:"turns"`
		}{}
		want[session].Digest, want[session].Turns = r.is(session)
	}
	q := coreapi.MemoryQuery{Op: coreapi.MemoryStore, Agent: "main", Caller: "test", Text: fact}
	if err := r.client.Administer(natstest.Context(t), coreapi.VerbMemory, q, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	r.keeps()
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	_, err := backup.Take(natstest.Context(t), r.client.Journal.Bus, z, backup.TakeConfig{Version: fmt.Sprintf("fold %d", decide.FoldVersion)})
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	about, err := json.MarshalIndent(want, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{file + ".backup.gz": archive.Bytes(), file + ".json": append(about, '\n')} {
		if err := os.WriteFile(name, body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// restored returns the data directory of a system with the log in a file.
func restored(t *testing.T, file string) string {
	t.Helper()
	packed, err := os.Open(file + ".backup.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }() // it was only read
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	a, err := backup.Open(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	s, err := system.StartOffline(natstest.Context(t), data, natstest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if err := a.Restore(natstest.Context(t), s.Journal.Bus, backup.RestoreConfig{}); err != nil {
		t.Fatal(err)
	}
	return data
}

// Every log that a release has written is folded, shown and continued by this one. One of this fold version is folded
// into the same state, bit for bit.
func TestLogsOfReleases(t *testing.T) {
	this := filepath.Join("testdata", fmt.Sprintf("fold%d", decide.FoldVersion))
	if *update {
		record(t, this)
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no logs: %v", err)
	}
	if _, err := os.Stat(this + ".json"); err != nil {
		t.Errorf("the log of this fold version is not recorded: go test ./test/golden -update")
	}
	for _, about := range files {
		file := strings.TrimSuffix(about, ".json")
		t.Run(filepath.Base(file), func(t *testing.T) { check(t, file, file == this) })
	}
}

func check(t *testing.T, file string, same bool) {
	var want expected
	body, err := os.ReadFile(file + ".json")
	if err == nil {
		err = json.Unmarshal(body, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, restored(t, file), 0)
	r.keeps()
	for session, was := range want {
		switch session {
		case "scheduled": // it may have had turns since
		case "waiting":
			// Nobody has answered for so long.
			natstest.Eventually(t, "the request has expired", func() bool {
				_, turns := r.is(session)
				return len(turns) > 0 && turns[0].Outcome == timeline.OutcomeAnswered
			})
		default:
			digest, turns := r.is(session)
			if same && digest != was.Digest {
				t.Errorf("%s is folded into %s, want %s", session, digest, was.Digest)
			}
			if is, want := lines(t, turns), lines(t, was.Turns); is != want {
				t.Errorf("%s has the turns\n%s\nwant\n%s", session, is, want)
			}
		}
		if session == "deleted" {
			if end := r.say(session, "/undelete"); end.Recorded == nil {
				t.Errorf("it does not come back: %+v", end.Failed)
			}
		}
		if end := r.say(session, `call math:evaluate {"expression":"6*7"}`); end.Recorded == nil || !strings.Contains(end.Recorded.Answer, "42") {
			t.Errorf("%s goes on with %+v", session, end.Recorded)
		}
	}
}

// keeps fails the test if what the agent remembered, or had scheduled, is lost.
func (r *rig) keeps() {
	r.t.Helper()
	var schedules coreapi.SchedulesPage
	if err := r.client.Ask(natstest.Context(r.t), coreapi.VerbSchedules, coreapi.SchedulesQuery{Agent: "main"}, &schedules); err != nil {
		r.t.Fatal(err)
	}
	if len(schedules.Schedules) != 1 || schedules.Schedules[0].Name != "daily" {
		r.t.Errorf("the schedules are %+v", schedules.Schedules)
	}
	natstest.Eventually(r.t, "what it remembered is found", func() bool {
		var found coreapi.MemoryAnswer
		q := coreapi.MemoryQuery{Op: coreapi.MemorySearch, Agent: "main", Caller: "test", Text: "boiler"}
		if err := r.client.Ask(natstest.Context(r.t), coreapi.VerbMemory, q, &found); err != nil {
			r.t.Fatal(err)
		}
		return slices.ContainsFunc(found.Hits, func(h memory.Hit) bool { return h.Memory.Text == fact })
	})
}

func lines(t *testing.T, turns []timeline.TurnRow) string {
	t.Helper()
	var out strings.Builder
	for _, row := range turns {
		b, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(b, '\n'))
	}
	return out.String()
}
