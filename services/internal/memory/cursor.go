package memory

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"

	"skandha.dev/pkg/memory"
	"skandha.dev/services/internal/store"
)

// Cursor is a position in the order of List: the last memory of a page. Only
// implementations of Store use it; for callers it is an opaque string.
type Cursor struct {
	Micros int64 // Created, as of store.Micros
	ID     string
}

// first is the position before all memories.
var first = Cursor{Micros: math.MaxInt64}

// CursorOf returns the position of a memory.
func CursorOf(m memory.Memory) Cursor { return Cursor{Micros: store.Micros(m.Created), ID: m.ID} }

// Compare orders positions: newest first, then by id.
func (c Cursor) Compare(d Cursor) int {
	return cmp.Or(cmp.Compare(d.Micros, c.Micros), cmp.Compare(c.ID, d.ID))
}

// String encodes c.
func (c Cursor) String() string {
	b := binary.AppendUvarint(nil, uint64(c.Micros))
	return base64.RawURLEncoding.EncodeToString(append(b, c.ID...))
}

func parseCursor(s string) (Cursor, error) {
	if s == "" {
		return first, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	us, n := binary.Uvarint(b)
	if err != nil || n <= 0 || us > math.MaxInt64 || n == len(b) {
		return Cursor{}, fmt.Errorf("%w: cursor %.64q", ErrInvalid, s)
	}
	return Cursor{Micros: int64(us), ID: string(b[n:])}, nil
}
