package sandbox

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/runes"
	"skandha.dev/services/sandbox/agent"
)

const (
	// streamEvery is how often output is published.
	streamEvery = 50 * time.Millisecond
	// maxPiece bounds the text of one message, in bytes.
	maxPiece = 16 << 10
	// maxPending bounds the output that waits to be published, in bytes; the rest is dropped.
	maxPending = 64 << 10
	// maxStreamed bounds the output published for one call, in bytes. Its result has the rest.
	maxStreamed = 1 << 20
)

// printer publishes a run's output while it runs. The run never waits for it.
type printer struct {
	send func(tool.Output) // called in order; sets call and attempt

	sending sync.Mutex // held while something is sent

	mu      sync.Mutex
	pending []piece
	bytes   int // in pending
	total   int
	timer   *time.Timer // set while output waits
	closed  bool

	n int // guarded by sending
}

type piece struct {
	stream agent.Stream
	text   []byte
}

func newPrinter(send func(tool.Output)) *printer {
	return &printer{send: send}
}

// add queues output; it never blocks.
func (p *printer) add(stream agent.Stream, text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.keep(stream, text)
	if p.timer == nil && len(p.pending) > 0 {
		p.timer = time.AfterFunc(streamEvery, p.tick)
	}
}

func (p *printer) keep(stream agent.Stream, text []byte) {
	text = text[:min(len(text), maxPending-p.bytes, maxStreamed-p.total)]
	if len(text) == 0 {
		return
	}
	p.bytes += len(text)
	p.total += len(text)
	if last := len(p.pending) - 1; last >= 0 && p.pending[last].stream == stream {
		p.pending[last].text = append(p.pending[last].text, text...)
		return
	}
	p.pending = append(p.pending, piece{stream, bytes.Clone(text)})
}

// printed returns how many bytes were printed.
func (p *printer) printed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

func (p *printer) tick() {
	p.flush()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if len(p.pending) > 0 && !p.closed {
		p.timer = time.AfterFunc(streamEvery, p.tick)
	}
}

// close sends the pending output. Nothing is sent afterwards.
func (p *printer) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.flush()
}

func (p *printer) flush() {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.mu.Lock()
	pending := p.pending
	p.pending, p.bytes = nil, 0
	p.mu.Unlock()
	for _, piece := range pending {
		text := strings.ToValidUTF8(string(piece.text), "\uFFFD")
		for text != "" {
			var head string
			head, text = runes.Split(text, maxPiece)
			p.send(tool.Output{N: p.n, Stream: string(piece.stream), Text: head})
			p.n++
		}
	}
}
