package natstest_test

import (
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/natstest"
)

func TestProcessKeepsItsStreamsAndItsPort(t *testing.T) {
	p := natstest.StartProcess(t, "", 0)
	url := p.URL()
	b := natstest.ConnectURL(t, url)
	var last uint64
	for _, end := range []func(){p.Kill, p.Stop, func() {}} {
		seq, err := b.PublishCause(natstest.Context(t), subject.Ref{Agent: "a", Session: "s"}, subject.Input, "w", "", []byte("x"))
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
