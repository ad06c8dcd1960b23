package letter

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The form of the Message-IDs of what Skandha sends: <call>.<thread>.<mark><account>@<domain>,
// the first two and the last in hexadecimal.
const (
	mark       = "skandha-"
	callLen    = 24
	threadLen  = 16
	accountLen = 8
)

const (
	maxIDs     = 100 // of a References field
	maxIDBytes = 500
)

func digest(length int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\n")))
	return hex.EncodeToString(sum[:])[:length]
}

func account(address string) string { return digest(accountLen, "account", strings.ToLower(address)) }

// Thread is the id of a conversation, the same for all its letters: 16 hexadecimal digits.
type Thread string

// Thread returns the id of the thread that the letter belongs to, for the account with the
// address. It is named by a letter of ours among those that it answers or refers to, or derived
// from the thread's first letter, or from the letter itself. Fallback identifies a letter that
// has no Message-ID.
func (l *Letter) Thread(own, fallback string) Thread {
	return ThreadOf(own, l.MessageID, l.InReplyTo, l.References, fallback)
}

// ThreadOf is [Letter.Thread] for header fields.
func ThreadOf(own, id string, inReplyTo, references []string, fallback string) Thread {
	for i := len(inReplyTo) - 1; i >= 0; i-- {
		if t, ok := threadIn(inReplyTo[i], own); ok {
			return t
		}
	}
	for i := len(references) - 1; i >= 0; i-- {
		if t, ok := threadIn(references[i], own); ok {
			return t
		}
	}
	if t, ok := threadIn(id, own); ok {
		return t
	}
	for _, root := range []string{first(references), first(inReplyTo), id} {
		if root != "" {
			return Thread(digest(threadLen, "thread", strings.ToLower(own), root))
		}
	}
	return Thread(digest(threadLen, "letter", strings.ToLower(own), fallback))
}

// NewThread returns the id of a thread that begins with what a call sends. Key is the call's key.
func NewThread(own, key string) Thread {
	return Thread(digest(threadLen, "call", strings.ToLower(own), key))
}

// NewID returns the Message-ID of the letter that a call sends, without angle brackets. It is
// the same in every attempt of the call. Key is the call's key, which nobody can guess.
func NewID(own, key string, t Thread) string {
	_, domain, _ := strings.Cut(own, "@")
	return digest(callLen, "message", strings.ToLower(own), key) + "." + string(t) + "." + mark + account(own) + "@" + domain
}

// CallPart returns the part of a [NewID] that no other call's has.
func CallPart(id string) string {
	call, _, _ := strings.Cut(id, ".")
	return call
}

// OwnPart returns the part that the Message-IDs of all letters of an account have.
func OwnPart(own string) string { return "." + mark + account(own) + "@" }

// ReplySubject returns the subject of an answer.
func ReplySubject(subject string) string {
	if len(subject) >= 3 && strings.EqualFold(subject[:3], "re:") {
		return subject
	}
	return strings.TrimSpace("Re: " + subject)
}

// Ours reports whether the account with the address sent the letter with the Message-ID.
func Ours(id, own string) bool {
	_, ok := threadIn(id, own)
	return ok
}

func threadIn(id, own string) (Thread, bool) {
	local, _, _ := strings.Cut(id, "@")
	parts := strings.Split(local, ".")
	if len(parts) != 3 || len(parts[0]) != callLen || len(parts[1]) != threadLen || parts[2] != mark+account(own) ||
		strings.Trim(parts[0]+parts[1], "0123456789abcdef") != "" {
		return "", false
	}
	return Thread(parts[1]), true
}

// ids returns the message ids in a header field. Of a long References field, the first and the
// last are kept.
func ids(field string) []string {
	var out []string
	for {
		_, rest, ok := strings.Cut(field, "<")
		if !ok {
			break
		}
		id, after, ok := strings.Cut(rest, ">")
		if !ok {
			break
		}
		field = after
		if id = ValidID(id); id != "" {
			out = append(out, id)
		}
	}
	if n := len(out); n > maxIDs {
		out = append(out[:1:1], out[n-maxIDs+1:]...)
	}
	return out
}

// ValidID returns a message id that can be written into a header field, without angle brackets;
// "" if it cannot.
func ValidID(id string) string {
	id = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(id), "<"), ">")
	if id == "" || len(id) > maxIDBytes || strings.ContainsFunc(id, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || r == '<' || r == '>'
	}) {
		return ""
	}
	return id
}
