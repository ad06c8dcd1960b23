package sensor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skandha.dev/services/internal/journal"
	"skandha.dev/services/listener/mapping"
	"skandha.dev/services/listener/sensor"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

const quick = 50 * time.Millisecond

func each() mapping.Config {
	return mapping.Config{Session: string(listenertest.Ref.Session), TextTemplate: "{{.text}}"}
}

func newListener(t *testing.T, b *journal.Journal, cfg sensor.Config) *sensor.Listener {
	t.Helper()
	l, err := sensor.New("probe", cfg, sensor.Deps{Bus: b, Logger: natstest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func write(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestItPassesTheSuiteOfListeners(t *testing.T) {
	listenertest.Run(t, func(t *testing.T, b *journal.Journal) listenertest.Subject {
		path := filepath.Join(t.TempDir(), "log")
		write(t, path, "")
		l := newListener(t, b, sensor.Config{
			File: &sensor.File{Path: path, Interval: quick, From: sensor.FromStart}, Config: each(),
		})
		return listenertest.Subject{Listener: l, Keeps: true, Say: func(_ context.Context, text, _ string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			_, err = fmt.Fprintln(f, text)
			return err
		}}
	})
}
