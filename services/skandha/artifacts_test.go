package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/journal"
	"skandha.dev/services/skandha/system"
	"skandha.dev/services/test/natstest"
)

func TestArtifactsGoToASessionAndComeBack(t *testing.T) {
	data := t.TempDir()
	sys, err := system.Start(natstest.Context(t),
		system.Config{Data: data, Sync: "relaxed", Provider: "offline", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sys.Stop)
	g := &globals{Data: data, Log: "error"}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("mine.csv", []byte("a,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	put := artifactsPutCmd{Session: "s1", Agent: "main", File: "mine.csv"}
	if err := put.Run(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	const ref = "main/s1/uploads/mine.csv"
	_, all, err := says(t, "artifacts", "put", "s1", "mine.csv", "--data", data)
	if want := `--session s1 'use sandbox_fs:upload {"artifact": "` + ref + `", "path": "mine.csv"}'`; err != nil ||
		!strings.HasPrefix(all, ref+"\n") || !strings.Contains(all, want) {
		t.Errorf("%v\n%s", err, all)
	}
	get := artifactsGetCmd{Name: ref}
	if err := get.Run(t.Context(), g); err == nil || !strings.Contains(err.Error(), "mine.csv exists") {
		t.Errorf("a file is replaced unasked: %v", err)
	}
	get.Out = "yours.csv"
	if err := get.Run(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile("yours.csv"); string(b) != "a,b\n" {
		t.Errorf("got %q, %v", b, err)
	}
	for _, bad := range []string{"nope", ".."} {
		get := artifactsGetCmd{Name: bad}
		if err := get.Run(t.Context(), g); err == nil || !strings.Contains(err.Error(), "no artifact") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := (&artifactsPutCmd{Session: "a.b", Agent: "main", File: "mine.csv"}).Run(t.Context(), g); err == nil ||
		!strings.Contains(err.Error(), "SESSION") {
		t.Errorf("a session that cannot be: %v", err)
	}
	if err := (&artifactsRmCmd{Session: "s1"}).Run(t.Context(), g); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("files are removed unasked: %v", err)
	}
	if err := (&artifactsRmCmd{Names: []string{ref, "nope"}, Yes: true}).Run(t.Context(), g); err == nil ||
		!strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("a name that is not there: %v", err)
	}
	if err := (&artifactsRmCmd{Session: "s1", Yes: true}).Run(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if err := (&artifactsGetCmd{Name: ref, Out: "-"}).Run(t.Context(), g); err == nil ||
		!strings.Contains(err.Error(), "no artifact") {
		t.Errorf("it is still there: %v", err)
	}
	if left, err := filepath.Glob("*"); err != nil || len(left) != 2 {
		t.Errorf("%v are there, %v", left, err)
	}
}

func TestArtifactsToRemoveAreChosen(t *testing.T) {
	now := time.Now()
	all := []journal.ArtifactInfo{
		{Name: "main/s/t1/n", Stored: now.Add(-time.Hour)},
		{Name: "main/s/t1/n/old.png", Stored: now.Add(-time.Hour)},
		{Name: "main/s/uploads/new.csv", Stored: now},
	}
	for name, x := range map[string]struct {
		rm      artifactsRmCmd
		want    string
		results int
		invalid bool
	}{
		"by name, a result too": {artifactsRmCmd{Names: []string{"main/s/t1/n"}}, "main/s/t1/n", 0, false},
		"of a session":          {artifactsRmCmd{Session: "s"}, "main/s/t1/n/old.png main/s/uploads/new.csv", 1, false},
		"with results": {
			artifactsRmCmd{Agent: "main", Results: true}, "main/s/t1/n main/s/t1/n/old.png main/s/uploads/new.csv", 0, false,
		},
		"by age":        {artifactsRmCmd{OlderThan: time.Minute}, "main/s/t1/n/old.png", 1, false},
		"by nothing":    {artifactsRmCmd{Results: true}, "", 0, true},
		"by two things": {artifactsRmCmd{Names: []string{"x"}, Session: "s"}, "", 0, true},
	} {
		if err := x.rm.Validate(); (err != nil) != x.invalid {
			t.Errorf("%s: %v", name, err)
		}
		if x.invalid {
			continue
		}
		chosen, results, err := x.rm.choose(all, now)
		var names []string
		for _, a := range chosen {
			names = append(names, a.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != x.want || results != x.results {
			t.Errorf("%s: %s, %d results left out, %v", name, got, results, err)
		}
	}
}
