package letter

import (
	"strings"
)

// Verified is what the receiving server says about the sender.
type Verified int

// What a server may say.
const (
	Unknown Verified = iota // it says nothing
	Passed                  // the sender's domain authorised the letter (DMARC)
	Failed                  // it did not
)

// Authentication returns what the server with the name, an authserv-id of RFC 8601, says about
// DMARC. Only its topmost field counts: the server adds its own above those that a sender may
// have forged.
func (l *Letter) Authentication(server string) Verified {
	fields := l.header.FieldsByKey("Authentication-Results")
	for fields.Next() {
		id, results, _ := strings.Cut(withoutComments(fields.Value()), ";")
		name, _, _ := strings.Cut(strings.TrimSpace(id), " ") // a version may follow
		if !strings.EqualFold(name, server) {
			continue
		}
		return dmarc(results)
	}
	return Unknown
}

func dmarc(results string) Verified {
	for result := range strings.SplitSeq(results, ";") {
		method, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(result)), "=")
		if strings.TrimSpace(method) != "dmarc" {
			continue
		}
		value, _, _ = strings.Cut(strings.TrimSpace(value), " ")
		if value == "pass" {
			return Passed
		}
		return Failed
	}
	return Unknown
}

// withoutComments removes comments, which may be nested, and quoted strings, so that neither
// can contain what looks like a result.
func withoutComments(s string) string {
	var out strings.Builder
	depth, quoted, escaped := 0, false, false
	for _, r := range s {
		switch {
		case escaped:
			escaped = false
			continue
		case r == '\\' && (quoted || depth > 0):
			escaped = true
			continue
		case quoted:
			quoted = r != '"'
			continue
		case depth == 0 && r == '"':
			quoted = true
			continue
		case r == '(':
			depth++
			continue
		case r == ')' && depth > 0:
			depth--
			continue
		case depth > 0:
			continue
		case r == '\t' || r == '\r' || r == '\n':
			r = ' '
		}
		out.WriteRune(r)
	}
	return out.String()
}
