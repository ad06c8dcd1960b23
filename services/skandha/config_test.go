package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestConfigCheck(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"good.yaml": {"agents: {main: {confirm: 15m}}\n", nil},
		"bad.yaml":  {"agents: {main: {confirm: 15}}\n", exitFailed},
		"ui.yaml":   {"ui: {cookie: 1s}\n", exitFailed},
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			(&configCheckCmd{File: file}).Run(&globals{UI: "off"}), (&configCheckCmd{}).Run(&globals{Config: file}),
		} {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
	}
	if err := (&configCheckCmd{}).Run(&globals{}); err == nil {
		t.Error("without a file nothing is checked, and that is no error")
	}
}
