package natstest_test

import (
	"log/slog"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/natstest"
)

func TestProcessKeepsItsStreamsAndItsPort(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	url := p.URL()
	b := natstest.ConnectURL(t, url)
	var last uint64
	for _, end := range []func(){p.Kill, p.Stop, func() {}} {
		seq, err := b.PublishCause(natstest.Context(t), subject.Ref{Agent: "a", Session: "s"}, subject.Input, "w", "",
			[]byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if seq <= last {
			t.Fatalf("sequence %d after %d", seq, last)
		}
		last = seq
		end()
		p.Restart()
		if p.URL() != url {
			t.Fatalf("moved from %s to %s", url, p.URL())
		}
		var m bus.StoredMsg
		natstest.Eventually(t, "the stored message", func() bool {
			m, err = b.Message(natstest.Context(t), seq)
			return err == nil
		})
		if string(m.Data) != "x" {
			t.Errorf("%+v", m)
		}
	}
	p.Kill()
	p.Kill() // again is harmless
}

// Connections may log when the test has ended, even for the first time.
func TestWhatIsLoggedAfterTheEndIsDropped(t *testing.T) {
	var late *slog.Logger
	t.Run("test", func(t *testing.T) { late = natstest.Logger(t) })
	late.Info("nobody hears this")
}

func TestPortsAreGivenOnce(t *testing.T) {
	seen := map[int]bool{}
	for range 100 {
		port := natstest.FreePort(t)
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}
		seen[port] = true
	}
}
