package store

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
)

// Cursor is a position in the order of ListSessions: the last session of a page. Only
// implementations of Store use it; for callers it is an opaque string.
type Cursor struct {
	Key
	Micros int64 // Updated, as returned by Micros
}

// First is the position before all sessions.
var First = Cursor{Micros: math.MaxInt64}

// CursorOf returns the position of a listed session.
func CursorOf(s SessionInfo) Cursor {
	return Cursor{Key: s.Key, Micros: Micros(s.Updated)}
}

// Compare orders positions: most recently updated first, then by agent and session.
func (c Cursor) Compare(d Cursor) int {
	return cmp.Or(
		cmp.Compare(d.Micros, c.Micros),
		cmp.Compare(c.Agent, d.Agent),
		cmp.Compare(c.Session, d.Session),
	)
}

// String encodes c. It returns "" for First.
func (c Cursor) String() string {
	if c == First {
		return ""
	}
	b := binary.AppendUvarint(nil, uint64(c.Micros))
	b = binary.AppendUvarint(b, uint64(len(c.Agent)))
	b = append(b, c.Agent...)
	b = append(b, c.Session...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor decodes a string returned by String. For any other string it returns
// ErrInvalid.
func ParseCursor(s string) (Cursor, error) {
	if s == "" {
		return First, nil
	}
	bad := fmt.Errorf("%w: cursor %.64q", ErrInvalid, s)
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return Cursor{}, bad
	}
	us, n := binary.Uvarint(b)
	if n <= 0 || us > maxMicros {
		return Cursor{}, bad
	}
	b = b[n:]
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return Cursor{}, bad
	}
	b = b[n:]
	c := Cursor{Micros: int64(us), Key: Key{Agent: string(b[:size]), Session: string(b[size:])}}
	if c.Key.Validate() != nil {
		return Cursor{}, bad
	}
	return c, nil
}
