package hub_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/hub"
)

// press is a renderer that blocks while the gate is shut.
type press struct {
	gate     chan struct{}
	rendered atomic.Int64
	appended atomic.Int64
}

func (p *press) Render(text string) string {
	p.rendered.Add(1)
	return "<p>" + text + "</p>"
}

func (p *press) Stream() *sheet { return &sheet{p: p} }

// sheet has one block per line.
type sheet struct {
	p    *press
	text string
}

func (s *sheet) Append(text string) (changed []contract.Block) {
	s.p.appended.Add(1)
	<-s.p.gate
	from := strings.Count(s.text, "\n")
	s.text += text
	for i, line := range strings.Split(s.text, "\n") {
		if i >= from {
			changed = append(changed, contract.Block{Index: i, HTML: "<p>" + line + "</p>"})
		}
	}
	return changed
}

// open opens the gate, now or when the test ends: a hub cannot be closed while it renders.
func (p *press) open(t *testing.T) (now func()) {
	t.Helper()
	now = sync.OnceFunc(func() { close(p.gate) })
	t.Cleanup(now)
	return now
}

func piece(n int, text string) provider.Delta {
	return provider.Delta{Plan: "t1-p1", Attempt: "a", N: n, Text: text}
}

// A slow renderer does not delay feeds without HTML, and does not fall behind: what arrives
// meanwhile is rendered in one go.
func TestASlowRenderer(t *testing.T) {
	p := &press{gate: make(chan struct{})}
	w := newWorld(t, hub.Config{}, hub.Rendering(p))
	open := p.open(t)
	plain, html := w.attach(contract.Attachment{}), w.attach(contract.Attachment{HTML: true})
	w.delta(piece(0, "a"))
	natstest.Eventually(t, "the first piece is being rendered", func() bool { return p.appended.Load() == 1 })
	for n := 1; n < 50; n++ {
		w.delta(piece(n, "\nb"))
	}
	for n := range 50 { // before the event: the log may bring it sooner than the bus brings them
		if d := decode[contract.Delta](t, next(t, plain)); d.N != n || len(d.Blocks) > 0 {
			t.Fatalf("got %+v, want the piece %d", d, n)
		}
	}
	w.said("an event, which nobody waits with")
	if n := next(t, plain); n.Method != contract.OnNewMessage {
		t.Fatalf("got %s", n.Method)
	}
	if n := next(t, html); n.Method != contract.OnNewMessage {
		t.Fatalf("got %s %s before it was rendered", n.Method, n.Params)
	}
	open()
	first := decode[contract.Delta](t, next(t, html))
	rest := decode[contract.Delta](t, next(t, html))
	if first.Text != "a" || len(first.Blocks) != 1 || first.Turn != "t1" {
		t.Errorf("the first is %+v", first)
	}
	if rest.N != 49 || rest.Text != strings.Repeat("\nb", 49) || len(rest.Blocks) != 50 || p.appended.Load() != 2 {
		t.Errorf("got %+v after %d renderings, want all the others at once", rest, p.appended.Load())
	}
}

// A feed that begins in the middle of an answer gets all blocks so far with the next piece.
func TestBlocksForWhoComesLate(t *testing.T) {
	p := &press{gate: make(chan struct{})}
	close(p.gate)
	w := newWorld(t, hub.Config{}, hub.Rendering(p))
	plain := w.attach(contract.Attachment{})
	w.delta(piece(0, "one\n"))
	next(t, plain)
	if p.appended.Load() != 0 {
		t.Error("something was rendered though nobody wants HTML")
	}
	blocks := func(f contract.Feed) map[int]string {
		all := map[int]string{}
		for _, b := range decode[contract.Delta](t, next(t, f)).Blocks {
			all[b.Index] = b.HTML
		}
		return all
	}
	early := w.attach(contract.Attachment{HTML: true})
	w.delta(piece(1, "two\n"))
	if got := blocks(early); len(got) != 3 || got[0] != "<p>one</p>" || got[1] != "<p>two</p>" {
		t.Errorf("got %v, want the text from its beginning", got)
	}
	late := w.attach(contract.Attachment{HTML: true})
	w.delta(piece(2, "three"))
	if got := blocks(late); len(got) != 3 || got[0] != "<p>one</p>" || got[2] != "<p>three</p>" {
		t.Errorf("got %v, want all blocks", got)
	}
}

// However many feeds want HTML, a text is rendered once; if none does, not at all.
func TestRenderedOnce(t *testing.T) {
	p := &press{}
	w := newWorld(t, hub.Config{Ring: 1}, hub.Rendering(p))
	plain := w.attach(contract.Attachment{After: "0"})
	w.said("nobody wants it")
	next(t, plain)
	if n := p.rendered.Load(); n != 0 {
		t.Errorf("rendered %d times, want never", n)
	}
	var feeds []contract.Feed
	for range 20 { // feeds that read
		feeds = append(feeds, w.attach(contract.Attachment{HTML: true}))
	}
	_, live := w.commit(
		event.PlanCompleted{Plan: "t1-p1", Response: &provider.Response{TextContent: "twice"}},
		event.UIMessage{Content: "twice", Format: event.Markdown},
		event.UIMessage{Content: "no *Markdown*", Format: event.Text},
	)
	for range 20 { // read it from the log, each for himself
		feeds = append(feeds, w.attach(contract.Attachment{After: "0", HTML: true}))
	}
	var readers sync.WaitGroup
	for _, f := range feeds {
		readers.Go(func() {
			for {
				n, err := f.Next(natstest.Context(t))
				if err != nil {
					t.Error(err)
					return
				}
				s := string(n.Params)
				switch {
				case strings.Contains(s, "twice") && !strings.Contains(s, `\u003cp\u003etwice`):
					t.Errorf("%s without HTML: %s", n.Method, s)
				case strings.Contains(s, "no *Markdown*"):
					if strings.Contains(s, "html") {
						t.Errorf("plain text is rendered: %s", s)
					}
					return
				}
			}
		})
	}
	for i := range 3 {
		live(i)
	}
	readers.Wait()
	if n := p.rendered.Load(); n != 2 { // that text, and the one before it
		t.Errorf("rendered %d times, want once for each text", n)
	}
}

// A delta that arrives after the text that replaces it, or of an abandoned attempt, is not
// sent.
func TestLateDeltas(t *testing.T) {
	p := &press{gate: make(chan struct{})}
	close(p.gate)
	w := newWorld(t, hub.Config{}, hub.Rendering(p))
	feeds := []contract.Feed{w.attach(contract.Attachment{}), w.attach(contract.Attachment{HTML: true})}
	w.delta(piece(0, "given up"))
	for _, f := range feeds {
		next(t, f)
	}
	second := piece(0, "second")
	second.Attempt = "b"
	w.delta(second)
	w.delta(piece(1, "late"))
	for _, f := range feeds {
		if d := decode[contract.Delta](t, next(t, f)); d.Attempt != "b" {
			t.Errorf("got %+v", d)
		}
	}
	_, live := w.commit(event.PlanCompleted{Plan: "t1-p1", Response: &provider.Response{TextContent: "second"}})
	live(0)
	for _, f := range feeds {
		if n := next(t, f); n.Method != contract.OnPlanCompleted {
			t.Errorf("got %s %s", n.Method, n.Params)
		}
	}
	second.N = 1
	w.delta(second)
	w.said("over")
	for _, f := range feeds {
		if n := next(t, f); n.Method != contract.OnNewMessage {
			t.Errorf("got %s %s", n.Method, n.Params)
		}
	}
}
