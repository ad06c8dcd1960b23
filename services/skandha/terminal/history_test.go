package terminal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatWasTypedIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "history")
	a := openHistory(file)
	for _, text := range []string{
		"one", "two\nlines \"q\"", "two\nlines \"q\"", " secret", "  ", strings.Repeat("x", maxEntryBytes+1), "three",
	} {
		if err := a.add(text); err != nil {
			t.Fatal(err)
		}
	}
	b := openHistory(file)
	if want := []string{"one", "two\nlines \"q\"", "three"}; fmt.Sprint(b.all) != fmt.Sprint(want) {
		t.Fatalf("%q, want %q", b.all, want)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, ok := b.forth(); ok {
		t.Error("there is something after the end")
	}
	for _, want := range []string{"three", "two\nlines \"q\"", "one"} {
		if got, ok := b.back("draft"); !ok || got != want {
			t.Errorf("%q, %v; want %q", got, ok, want)
		}
	}
	if _, ok := b.back(""); ok {
		t.Error("there is something before the beginning")
	}
	for range 2 {
		b.forth()
	}
	if got, ok := b.forth(); !ok || got != "draft" {
		t.Errorf("%q, %v; want the draft", got, ok)
	}
}

func TestWhatWasTypedIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	var b strings.Builder
	for i := range 2*maxEntries + 1 {
		fmt.Fprintf(&b, "%q\n", fmt.Sprint("line ", i))
	}
	b.WriteString("garbage\n")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	openHistory(file)
	if again := openHistory(file); len(again.all) != maxEntries ||
		again.all[maxEntries-1] != fmt.Sprint("line ", 2*maxEntries) {
		t.Fatalf("%d entries are left, the last %q", len(again.all), again.all[len(again.all)-1])
	}
}
