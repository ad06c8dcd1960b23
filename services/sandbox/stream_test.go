package sandbox

import (
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/sandbox/agent"
)

func TestWhatWaitsIsOneMessagePerStreamInOrder(t *testing.T) {
	var got []tool.Output
	p := newPrinter(func(o tool.Output) { got = append(got, o) })
	p.add(agent.Stdout, []byte("a"))
	p.add(agent.Stdout, []byte("b"))
	p.add(agent.Stderr, []byte("c"))
	p.add(agent.Stdout, []byte("d\xff"))
	p.close()
	p.add(agent.Stdout, []byte("late"))
	p.close()
	var text strings.Builder
	for i, o := range got {
		if o.N != i {
			t.Errorf("piece %d is number %d", i, o.N)
		}
		text.WriteString(o.Stream + ":" + o.Text + " ")
	}
	if text.String() != "stdout:ab stderr:c stdout:d\uFFFD " {
		t.Errorf("got %q", text.String())
	}
}

func TestAFloodIsBoundedAndCutAtCharacters(t *testing.T) {
	total := 0
	p := newPrinter(func(o tool.Output) {
		if len(o.Text) > maxPiece || strings.ContainsRune(o.Text, '\uFFFD') {
			t.Errorf("a piece of %d bytes", len(o.Text))
		}
		total += len(o.Text)
	})
	p.sending.Lock() // nothing is sent meanwhile
	for range 100 {
		p.add(agent.Stdout, []byte(strings.Repeat("ä", 4<<10)))
	}
	p.sending.Unlock()
	p.close()
	if total != maxPending {
		t.Errorf("%d bytes were published, want %d", total, maxPending)
	}
}
