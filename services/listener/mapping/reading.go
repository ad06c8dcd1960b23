package mapping

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"skandha.dev/services/internal/jsondoc"
)

// Reading is one message of a device, or one measurement.
type Reading struct {
	Name string // a topic, a series, a file
	Data []byte
	Time time.Time
	// ID is the same if the reading is taken again; empty if it never is.
	ID string
	// Again: it may have been taken before, under the same ID.
	Again bool
	// Retained: it is the last known state, not news. It counts if the name has had no input
	// with this value.
	Retained bool
}

// ErrUnreadable means that a reading has no value as the rule wants it.
var ErrUnreadable = errors.New("unreadable")

// value is what a rule judges.
type value struct {
	text   string // of a string itself, else JSON
	number float64
	doc    any // the whole document; nil if it is none
}

// read finds the value of a reading.
func (c Config) read(r Reading) (v value, err error) {
	if !utf8.Valid(r.Data) {
		return v, fmt.Errorf("%w: it is not valid UTF-8", ErrUnreadable)
	}
	doc, err := jsondoc.Decode(r.Data)
	found := any(strings.TrimSpace(string(r.Data)))
	if err == nil {
		v.doc = doc
	}
	if c.ValueField != "" {
		if err != nil {
			return v, fmt.Errorf("%w: value_field is set, and it is not JSON: %w", ErrUnreadable, err)
		}
		var ok bool
		if found, ok = jsondoc.Lookup(doc, c.ValueField); !ok {
			return v, fmt.Errorf("%w: it has no %s", ErrUnreadable, c.ValueField)
		}
	}
	var isText bool
	if v.text, isText = found.(string); !isText {
		b, err := json.Marshal(found)
		if err != nil {
			return v, fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		v.text = string(b)
	}
	if !c.crosses() && c.Window == 0 {
		return v, nil
	}
	v.number, err = strconv.ParseFloat(strings.TrimSpace(v.text), 64)
	if err != nil || math.IsNaN(v.number) || math.IsInf(v.number, 0) {
		return v, fmt.Errorf("%w: the value is not a number", ErrUnreadable)
	}
	return v, nil
}

// crossed describes which threshold the number is beyond; empty: none.
func (c Config) crossed(n float64) string {
	switch {
	case c.Above != nil && n > *c.Above:
		return "above " + number(*c.Above)
	case c.Below != nil && n < *c.Below:
		return "below " + number(*c.Below)
	}
	return ""
}

// recovered reports whether the number is back in the band by the hysteresis.
func (c Config) recovered(n float64) bool {
	return (c.Above == nil || n <= *c.Above-c.Hysteresis) && (c.Below == nil || n >= *c.Below+c.Hysteresis)
}

func number(n float64) string { return strconv.FormatFloat(n, 'g', -1, 64) }
