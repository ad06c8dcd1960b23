package listener_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener"
	"skandha.dev/services/listener/mapping"
	"skandha.dev/services/listener/sensor"
	"skandha.dev/services/test/natstest"
)

func TestListenersReportHowTheyAre(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	missing := filepath.Join(t.TempDir(), "missing")
	s, err := listener.New(listener.Config{Sensor: map[string]sensor.Config{
		"file":    {File: &sensor.File{Path: missing}, Config: mapping.Config{Session: "s"}},
		"command": {Command: &sensor.Command{Args: []string{"true"}}, Config: mapping.Config{Session: "s"}},
	}}, listener.Options{}, listener.Deps{Bus: b, Logger: natstest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	list := func() []senses.Listed {
		t.Helper()
		all, err := senses.List(natstest.Context(t), b)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	natstest.Eventually(t, "both report", func() bool {
		all := list()
		return len(all) == 2 && all[0].Listener == "command" && all[0].State == "ok" && all[0].Kind == "sensor" &&
			all[1].State == "down" && strings.Contains(all[1].Reason, "no such file")
	})
	if n := s.Counters(); n["listener_state_ok"] != 1 || n["listener_state_down"] != 1 {
		t.Errorf("the counters are %v", n)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if all := list(); len(all) != 0 {
		t.Errorf("after the end there are %+v", all)
	}
}
