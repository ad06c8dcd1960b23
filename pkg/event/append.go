package event

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// AppendJSON appends the envelope to b in structured JSON. Data must be valid JSON, as
// [New] and [Decode] guarantee.
func (e Event) AppendJSON(b []byte) []byte {
	b = append(b, `{"specversion":`...)
	b = appendString(b, e.SpecVersion)
	b = append(b, `,"id":`...)
	b = appendString(b, e.ID)
	b = append(b, `,"source":`...)
	b = appendString(b, e.Source)
	b = append(b, `,"type":`...)
	b = appendString(b, string(e.Type))
	if !e.Time.IsZero() {
		b = append(b, `,"time":"`...)
		b = e.Time.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, '"')
	}
	b = appendOptional(b, "agent", string(e.Agent))
	b = appendOptional(b, "session", string(e.Session))
	b = appendOptional(b, "turn", e.Turn)
	b = appendOptional(b, "cause", e.Cause)
	b = append(b, `,"data":`...)
	if len(e.Data) == 0 {
		b = append(b, "null"...)
	} else {
		b = append(b, e.Data...)
	}
	return append(b, '}')
}

func appendOptional(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return appendString(b, value)
}

// appendString writes plain ASCII strings directly and uses encoding/json for all others.
func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			enc, err := json.Marshal(s)
			if err != nil {
				return append(b, `""`...)
			}
			return append(b, enc...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
