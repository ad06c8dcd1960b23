package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/internal/natstest"
	"skandha.dev/services/skandha/system"
)

func TestArtifactsGoToASessionAndComeBack(t *testing.T) {
	data := t.TempDir()
	sys, err := system.Start(natstest.Context(t), system.Config{Data: data, Sync: "relaxed", Provider: "offline", Log: slog.New(slog.DiscardHandler)})
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
	if want := "--session s1 'Call sandbox_fs:upload with artifact " + ref + " and path mine.csv'"; err != nil ||
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
		if err := get.Run(t.Context(), g); err == nil || !strings.Contains(err.Error(), "there is no artifact") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := (&artifactsPutCmd{Session: "a.b", Agent: "main", File: "mine.csv"}).Run(t.Context(), g); err == nil || !strings.Contains(err.Error(), "SESSION") {
		t.Errorf("a session that cannot be: %v", err)
	}
	if left, err := filepath.Glob("*"); err != nil || len(left) != 2 {
		t.Errorf("%v are there, %v", left, err)
	}
}
