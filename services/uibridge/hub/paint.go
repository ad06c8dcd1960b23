package hub

import (
	"strings"
	"sync"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/follow"
	"skandha.dev/services/uibridge/contract"
)

// painter renders the text of the current attempt for the feeds that want HTML. Deltas that
// arrive while it renders are rendered in one go, so that it is at most one step behind,
// however slow rendering is.
type painter struct {
	mu       sync.Mutex
	plan     string
	attempt  string
	before   string // the previous attempt; further deltas of it are too late
	done     string // the plan that was completed last; likewise
	attempts int    // counts attempts, to identify one that has ended

	text, reasoning strings.Builder // not rendered yet
	last            follow.Item     // the last delta of text and reasoning
	stream          Stream          // nil until a feed wants HTML
	blocks          []string        // rendered so far
	all             bool            // a new feed has not seen the blocks yet
	painting        bool            // a goroutine is rendering
}

// maxUnpainted limits the text that is kept in case a feed wants it as HTML, in bytes.
const maxUnpainted = 1 << 20

// add adds a delta, and reports whether it is still of interest.
func (p *painter) add(s *session, i follow.Item) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := i.Delta
	if d.Plan == p.done || d.Attempt == p.before {
		return false
	}
	if d.Plan != p.plan || d.Attempt != p.attempt {
		p.before = p.attempt
		p.reset()
		p.plan, p.attempt = d.Plan, d.Attempt
	}
	if s.hub.deps.Markdown == nil || p.text.Len()+p.reasoning.Len() > maxUnpainted {
		return true
	}
	p.text.WriteString(d.Text)
	p.reasoning.WriteString(d.Reasoning)
	p.last = i
	if !p.painting && s.html.Load() > 0 {
		p.painting = true
		s.hub.running.Go(func() { p.paint(s) })
	}
	return true
}

// reset drops the attempt.
func (p *painter) reset() {
	p.attempts++
	p.text.Reset()
	p.reasoning.Reset()
	p.stream, p.blocks, p.all = nil, nil, false
}

// replaced drops an attempt whose text is in the log now.
func (p *painter) replaced(i follow.Item) {
	plan, over := "", i.Event.Type.Terminal()
	v := event.Visitor{PlanCompleted: func(c event.PlanCompleted) { plan, over = c.Plan, true }}
	_ = v.Visit(i.Event) // what cannot be read replaces nothing
	if !over {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case plan == p.plan:
		p.reset()
	case plan == "" && i.Event.Turn != "" && i.Event.Turn == p.last.Turn:
		plan = p.plan // the attempt was cut off
		p.reset()
	}
	if plan != "" {
		p.done = plan
	}
}

// repaint includes all blocks in the next delta.
func (p *painter) repaint() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = true
}

// paint renders until nothing is waiting.
func (p *painter) paint(s *session) {
	for {
		stream, delta, number, ok := p.next(s)
		if !ok {
			return
		}
		var changed []contract.Block
		if delta.Text != "" {
			changed = stream.Append(delta.Text) // the attempt may have ended by now; keep checks that
		}
		delta.Blocks = p.keep(changed, number)
		n, err := encode(place{}, contract.OnDelta, delta)
		if err != nil {
			s.log.Warn("encoding a delta failed", "session", s.ref, "error", err)
			continue
		}
		s.mu.Lock()
		var ended []*feed
		if p.current(number) { // else the log has the text, or another attempt has begun
			ended = s.offer(&notification{note: n}, withHTML)
		}
		s.mu.Unlock()
		s.hub.release(ended...)
	}
}

// next takes the waiting text, and returns the stream that renders it.
func (p *painter) next(s *session) (stream Stream, d contract.Delta, number int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text.Len() == 0 && p.reasoning.Len() == 0 || s.html.Load() == 0 {
		p.painting = false
		return nil, d, 0, false
	}
	if p.stream == nil {
		p.stream = s.hub.deps.Markdown.Stream()
	}
	d = contract.Delta{
		About: contract.About{Agent: s.ref.Agent, Session: s.ref.Session, Turn: p.last.Turn},
		Delta: provider.Delta{
			Plan: p.plan, Attempt: p.attempt, N: p.last.Delta.N, Text: p.text.String(), Reasoning: p.reasoning.String(),
		},
	}
	p.text.Reset()
	p.reasoning.Reset()
	return p.stream, d, p.attempts, true
}

// keep stores the changed blocks and returns those to send.
func (p *painter) keep(changed []contract.Block, number int) []contract.Block {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attempts != number {
		return nil
	}
	for _, b := range changed {
		for len(p.blocks) <= b.Index {
			p.blocks = append(p.blocks, "")
		}
		p.blocks[b.Index] = b.HTML
	}
	if !p.all {
		return changed
	}
	p.all = false
	all := make([]contract.Block, len(p.blocks))
	for i, html := range p.blocks {
		all[i] = contract.Block{Index: i, HTML: html}
	}
	return all
}

func (p *painter) current(number int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempts == number
}
