package agent

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"skandha.dev/services/internal/nesting"
)

// Bounds of the protocol; agent.py has the same ones.
const (
	maxPayload = 1 << 20   // of a frame
	window     = 512 << 10 // bytes of data that may be in transit without credit
	chunk      = 64 << 10  // of data
	maxSaid    = 512 << 10 // of a run's result, as its child sends it
	maxCode    = 1 << 20   // of the agent, compiled
	maxDepth   = 64        // of nested JSON
	maxTail    = 48 << 10  // of data sent with its request
)

// Kinds of frames.
const (
	toRequest = 'q'
	toData    = 'd'
	toEnd     = 'e' // of the data
	toCredit  = 'c' // for data, 4 bytes big-endian
	toStop    = 'x'

	fromVersion  = 'v' // of the interpreter: it needs the source
	fromCompiled = 'z'
	fromReady    = 'r'
	fromLive     = 'o' // 1 byte: which stream; the piece
	fromKept     = 'k' // the same, of kept output
	fromSaid     = 's' // by a run's child, about its result
	fromData     = 'd'
	fromCredit   = 'c'
	fromAnswer   = 'a' // the last of its id
)

// codeBroken is the agent's refusal when nothing can run in the sandbox any more.
const codeBroken = "broken"

type frame struct {
	kind    byte
	id      uint32
	payload []byte
}

func encodeFrame(kind byte, id uint32, payload ...[]byte) []byte {
	n := 5
	for _, p := range payload {
		n += len(p)
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, n+4), uint32(n))
	b = binary.BigEndian.AppendUint32(append(b, kind), id)
	for _, p := range payload {
		b = append(b, p...)
	}
	return b
}

// block encodes a length and that many bytes, as the bootstrap reads them.
func block(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, len(b)+4), uint32(len(b))), b...)
}

// readFrame reads one frame. It fails on an invalid one.
func readFrame(r io.Reader) (frame, error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(head[:4])
	if n < 5 || n > maxPayload+5 {
		return frame{}, fmt.Errorf("a frame of %d bytes", n)
	}
	f := frame{kind: head[4], id: binary.BigEndian.Uint32(head[5:]), payload: make([]byte, n-5)}
	if _, err := io.ReadFull(r, f.payload); err != nil {
		return frame{}, fmt.Errorf("inside a frame: %w", err)
	}
	return f, nil
}

// decode decodes JSON of the agent into v.
func decode(text []byte, v any) error {
	if d := nesting.Depth(text); d > maxDepth {
		return fmt.Errorf("JSON with a nesting depth of %d", d)
	}
	return json.Unmarshal(text, v)
}
