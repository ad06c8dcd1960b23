package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/auditor"
	"skandha.dev/services/internal/audit"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/test/natstest"
)

// nothing remembers no marks.
type nothing struct{}

func (nothing) SetMark(context.Context, string, uint64) error { return nil }
func (nothing) Mark(context.Context, string) (uint64, error)  { return 0, nil }

func TestTheAuditLogIsListedExportedAndVerified(t *testing.T) {
	s := natstest.Start(t, natstest.WithTCP())
	b := natstest.Connect(t, s)
	natstest.EnsureStreams(t, b)
	var a atomic.Pointer[auditor.Auditor]
	begin := func() { a.Store(auditor.New(auditor.Config{Bus: b, Log: natstest.Logger(t), Marks: nothing{}})) }
	begin()
	_, err := b.Respond(subject.Service(coreapi.AdminName, coreapi.VerbAudit), "", coreapi.AdminName, func(q *bus.Request) {
		coreapi.Answer(q, func(q *bus.Request) (any, error) {
			var ask coreapi.AuditQuery
			if err := json.Unmarshal(q.Data, &ask); err != nil {
				return nil, err
			}
			return a.Load().Query(q.Context(), ask)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (out, all string, err error) {
		t.Helper()
		return says(t, append(append([]string{"audit"}, args...), "--nats", s.ClientURL(), "--token", s.Token())...)
	}
	if out, all, err := run(); err != nil || out != "No entries.\n" {
		t.Errorf("an empty log: %v\n%s", err, all)
	}
	act := func(by, what string) {
		t.Helper()
		e := audit.Entry{By: audit.Who{Kind: audit.Operator, Name: by}, Verb: audit.Revoked, What: what, Detail: "\x1b[2Jcleared"}
		if _, err := a.Load().Announce(natstest.Context(t), e); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		act([]string{"ann", "bob"}[i%2], fmt.Sprint("identity ", i))
	}
	out, all, err := run("--by", "bob")
	if rows := strings.Split(strings.TrimSpace(out), "\n"); err != nil || len(rows) != 3 || !strings.HasPrefix(rows[1], "2 ") ||
		!strings.Contains(rows[2], "operator bob") || !strings.Contains(rows[2], "identity 3") || strings.Contains(out, "\x1b") {
		t.Errorf("%v\n%s", err, all)
	}
	if out, all, err = run("-n", "2", "--json", "--since", "1h"); err != nil || strings.Count(out, "\n") != 2 || !strings.HasPrefix(out, `{"n":4,`) {
		t.Errorf("%v\n%s", err, all)
	}
	if _, all, err = run("--since", "soon"); err == nil || !strings.Contains(all, "want a time such as") {
		t.Errorf("%v\n%s", err, all)
	}

	file, heads := filepath.Join(t.TempDir(), "audit.jsonl"), filepath.Join(t.TempDir(), "heads.jsonl")
	if out, all, err = run("export", file); err != nil || !strings.Contains(out, "wrote 5 entries; continue later with --from 6") {
		t.Fatalf("%v\n%s", err, all)
	}
	if _, all, err = run("export", file); err == nil {
		t.Errorf("the file was overwritten\n%s", all)
	}
	exported, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	last, err := audit.Parse(audit.Lines(exported)[4])
	if err != nil {
		t.Fatal(err)
	}
	head, _ := json.Marshal(last.Head())
	write(t, heads, string(head)+"\n")
	for _, args := range [][]string{{"--head", heads}, {"--head", heads, "--file", file}, {"--complete"}} {
		if out, all, err = run(append([]string{"verify"}, args...)...); err != nil || !strings.HasSuffix(out, "\nintact\n") {
			t.Errorf("%s: %v\n%s", args, err, all)
		}
	}

	lines := strings.SplitAfter(string(exported), "\n")
	var published string
	for _, l := range audit.Lines(exported)[:3] {
		e, err := audit.Parse(l)
		if err != nil {
			t.Fatal(err)
		}
		head, _ := json.Marshal(e.Head())
		published += string(head) + "\n"
	}
	// Without its beginning, an export may be intact, but is not all that was.
	early, cut := filepath.Join(t.TempDir(), "early.jsonl"), filepath.Join(t.TempDir(), "cut.jsonl")
	write(t, early, published)
	write(t, cut, strings.Join(lines[2:], ""))
	const says12 = "entries before 3 are not here and were not checked"
	for _, c := range []struct {
		args []string
		ok   bool
		want []string
	}{
		{[]string{"--from", "3"}, true, []string{"--from leaves them out", "\nintact from entry 3 on\n"}},
		{[]string{"--from", "3", "--complete"}, true, []string{"\nintact from entry 3 on\n"}},
		{[]string{"--file", cut}, true, []string{says12, "\nintact from entry 3 on\n"}},
		{[]string{"--file", cut, "--complete"}, false, []string{says12, "\nNOT COMPLETE, intact from entry 3 on\n"}},
		{[]string{"--file", cut, "--head", early, "--head", heads}, true, []string{
			says12, "3 published heads agree\n1 published head of entries before 3: not compared\n", // 2 is named by 3
		}},
		{[]string{"--file", cut, "--from", "3", "--complete", "--head", early}, true, []string{"1 published head agree"}},
		{[]string{"--file", os.DevNull, "--complete"}, false, []string{"There are no entries."}},
	} {
		out, all, err := run(append([]string{"verify"}, c.args...)...)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v\n%s", c.args, err, all)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: want %q:\n%s", c.args, w, all)
			}
		}
	}
	write(t, early, strings.Replace(published, `"n":3`, `"n":2`, 1))
	if out, all, err = run("verify", "--file", cut, "--head", early); err == nil || !strings.Contains(out, "NOT INTACT") {
		t.Errorf("%v\n%s", err, all)
	}
	for want, text := range map[string]string{
		"NOT INTACT, from entry 2 on:\n  entry 2 was changed":                   strings.Replace(string(exported), "bob", "eve", 1),
		"NOT INTACT, from entry 3 on:\n  entries 3 to 3 were removed":           lines[0] + lines[1] + lines[3] + lines[4],
		"NOT INTACT, from entry 5 on:\n  entries 5 to 5 were removed: the last": strings.Join(lines[:4], ""),
	} {
		write(t, file, text)
		if out, all, err = run("verify", "--file", file, "--head", heads); err == nil || !strings.Contains(out, want) {
			t.Errorf("want %s: %v\n%s", want, err, all)
		}
	}
	// Everything is rewritten: the chain is intact, and the head shows it.
	if err := b.JetStream().DeleteStream(natstest.Context(t), "AUDIT"); err != nil {
		t.Fatal(err)
	}
	natstest.EnsureStreams(t, b)
	begin()
	for i := range 6 {
		act("eve", fmt.Sprint("identity ", i))
	}
	if _, all, err = run("verify"); err != nil {
		t.Errorf("%v\n%s", err, all)
	}
	if out, all, err = run("verify", "--head", heads); err == nil || !strings.Contains(out, "NOT INTACT, from entry 5 on:\n  entry 5 is not the one whose digest was published") {
		t.Errorf("%v\n%s", err, all)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
