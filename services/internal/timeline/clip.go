package timeline

import (
	"encoding/json"
	"strings"

	"skandha.dev/services/internal/text"
)

// line returns the first n bytes of a text as one line.
func line(s string, n int) string {
	return text.Cut(strings.Join(strings.Fields(text.Cut(s, 4*n)), " "), n)
}

// clipper shortens values to a maximum size each, and to a much smaller one after all of
// them together have used up the budget.
type clipper struct {
	most   int // bytes of one value
	budget int // bytes of all
}

// scarce is the maximum size of a value when the budget is used up, in bytes.
const scarce = 240

func (c *clipper) room() int {
	if c.budget <= 0 {
		return scarce
	}
	return c.most
}

// text shortens a text; cut reports whether it did.
func (c *clipper) text(s string) (out string, cut bool) {
	room := c.room()
	out = text.Cut(s, room)
	c.budget -= len(out)
	return out, len(s) > room
}

// json shortens a JSON value. A shortened value becomes a string: the beginning of its
// text.
func (c *clipper) json(v json.RawMessage) (out json.RawMessage, cut bool) {
	if len(v) <= c.room() {
		c.budget -= len(v)
		return v, false
	}
	s, err := json.Marshal(text.Cut(string(v), c.room()))
	if err != nil {
		return nil, true // a string always encodes
	}
	c.budget -= len(s)
	return s, true
}
