package main

import (
	"log/slog"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

func TestSessionsRepair(t *testing.T) {
	data := t.TempDir()
	ctx := natstest.Context(t)
	sys, err := system.Start(ctx,
		system.Config{Data: data, Sync: "relaxed", Provider: "offline", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sys.Stop)
	g := &globals{Data: data, Log: "error"}
	c, err := g.connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	ref := subject.Ref{Agent: "main", Session: "s1"}
	if _, err := c.runCommand(ctx, ref, "help"); err != nil {
		t.Fatal(err)
	}
	cmd := sessionsRepairCmd{one: one{Session: "s1", Agent: "main"}}
	if report, err := cmd.look(ctx, c, ref); err != nil || report.Damaged {
		t.Fatalf("a sound session: %+v, %v", report, err)
	}
	last, err := c.Journal.LastCommitSeq(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := natstest.Join(t, sys, "core").AppendCommit(ctx, ref, []byte("garbage"), last); err != nil {
		t.Fatal(err)
	}
	report, err := cmd.look(ctx, c, ref)
	if err != nil || !report.Damaged || report.Locked || len(report.Gaps) != 1 {
		t.Fatalf("before core has seen it: %+v, %v", report, err)
	}
	if err := (&sessionsRebuildCmd{Session: "s1", Agent: "main"}).Run(ctx, g); err == nil ||
		!strings.Contains(err.Error(), "skandha sessions repair s1") {
		t.Errorf("rebuild: %v", err)
	}
	if err := cmd.Run(ctx, g); err != nil { // which only looks
		t.Fatal(err)
	}
	if report, err := cmd.look(ctx, c, ref); err != nil || !report.Damaged || report.Locked {
		t.Fatalf("looking has changed something: %+v, %v", report, err)
	}
	cmd.Yes = true
	if err := cmd.Run(ctx, g); err != nil {
		t.Fatal(err)
	}
	if report, err := cmd.look(ctx, c, ref); err != nil || report.Damaged {
		t.Fatalf("after it was repaired: %+v, %v", report, err)
	}
	if _, err := c.runCommand(ctx, ref, "help"); err != nil {
		t.Fatal(err)
	}
}
