package markdown

import (
	"bytes"

	"skandha.dev/services/uibridge/contract"
)

// Stream renders a text while it is being generated, block by block. A block is
// complete when, after a blank line, another one has begun with a whole line: later
// text cannot change it. The last block is open and is rendered as far as it goes: a
// fence that has not ended is code.
//
// The blocks joined in order equal the result of [Renderer.Render] for the text so far,
// up to [maxBytes]. The cost of an append depends on the open block, not on the length
// of the text. A long open block is rendered again only when it has grown by a fixed
// share, so that the total cost of one long block is a small multiple of its length.
type Stream struct {
	r        *Renderer
	open     []byte // the text of the open block
	index    int    // of the open block
	shown    string // its HTML
	rendered int    // how much of it is in shown
}

// A small block is rendered at every append.
const (
	smallBlock = 2 << 10 // bytes
	growth     = 64      // a larger one when it has grown by a 64th
)

// Stream returns a stream for a new text.
func (r *Renderer) Stream() *Stream { return &Stream{r: r} }

// Append adds a piece of text and returns the blocks that are new or have changed since
// the last call. It may leave out a long open block; see [Stream.Flush].
func (s *Stream) Append(text string) []contract.Block {
	if text == "" {
		return nil
	}
	s.open = append(s.open, text...)
	if len(s.open) > smallBlock && len(s.open)-s.rendered < len(s.open)/growth {
		return nil
	}
	return s.Flush()
}

// Flush returns the blocks that Append has left out.
func (s *Stream) Flush() []contract.Block {
	if s.rendered == len(s.open) {
		return nil
	}
	var out []contract.Block
	begin := 0
	for _, end := range s.r.ends(s.open) {
		out = s.show(out, s.r.Render(string(s.open[begin:end])))
		s.index, s.shown, begin = s.index+1, "", end
	}
	s.open = bytes.Clone(s.open[begin:])
	out = s.show(out, s.r.Render(string(s.open)))
	s.rendered = len(s.open)
	return out
}

func (s *Stream) show(out []contract.Block, html string) []contract.Block {
	if html == s.shown {
		return out
	}
	s.shown = html
	return append(out, contract.Block{Index: s.index, HTML: html})
}

// ends returns the offsets at which blocks of the text are complete: where, after a
// blank line, another one has begun with a whole line.
func (r *Renderer) ends(src []byte) (at []int) {
	whole := bytes.LastIndexByte(src, '\n') + 1
	if whole == 0 || len(src) > maxBytes {
		return nil
	}
	defer func() {
		if recover() != nil { // Render panics as well, and logs it
			at = nil
		}
	}()
	_, opened := r.parse(src[:whole])
	for i, begin := range opened {
		if i > 0 && begin > 0 && endsBlank(src[:begin]) && (len(at) == 0 || begin > at[len(at)-1]) {
			at = append(at, begin)
		}
	}
	return at
}

// endsBlank reports whether the last complete line is blank.
func endsBlank(src []byte) bool {
	line := src[bytes.LastIndexByte(src[:len(src)-1], '\n')+1:]
	return len(bytes.Trim(line, " \t\r\n")) == 0
}
