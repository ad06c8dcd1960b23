package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestConfigCheck(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"good.yaml": {"agents: {main: {confirm: 15m}}\n", nil},
		"bad.yaml":  {"agents: {main: {confirm: 15}}\n", exitFailed},
		"via.yaml": {
			"notify: {rules: [{on: [failed], via: nosuch, to: x}]}\nlisteners: {push: {phone: {url: 'https://a'}}}\n", exitFailed,
		},
		"sent.yaml": {
			"notify: {rules: [{on: [failed], via: phone, to: x}]}\nlisteners: {push: {phone: {url: 'https://a'}}}\n", nil,
		},
		"elsewhere.yaml": {"notify: {rules: [{on: [failed], via: phone, to: x}]}\n", nil},
		"deliver.yaml":   {"policy: [{tool: 'deliver:*', effect: deny}]\n", exitFailed},
		"ui.yaml":        {"ui: {cookie: 1s}\n", exitFailed},
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

func TestABusThatIsAwayIsSaidWithWhatToDo(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = (&globals{NATS: "nats://t0ken@" + free.Addr().String(), Log: "error"}).connect(ctx)
	if err == nil || !strings.Contains(err.Error(), free.Addr().String()) ||
		!strings.Contains(err.Error(), "start the system (skandha up") || strings.Contains(err.Error(), "t0ken") {
		t.Errorf("%v", err)
	}
}
