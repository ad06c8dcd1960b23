package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"skandha.dev/pkg/subject"
)

// The parts of a derived id: a readable name of at most maxSlug bytes, a hyphen, and hashDigits
// digits of a hash.
const (
	hashDigits = 16
	maxSlug    = 64 - hashDigits - 1
)

// session returns the session of a conversation. The id is valid, and different conversations
// have different ones.
func (h *Hub) session(at Place) subject.Session {
	name := at.Room
	if at.Room == "" {
		name = "dm-" + at.Account
	}
	if p, ok := h.place(at.Room); ok && p.session != "" {
		if at.Thread == "" {
			return subject.Session(p.session)
		}
		name = p.session
	}
	return subject.Session(derived(string(h.name)+"-"+name, string(h.name), at.Room, at.Thread, at.Account))
}

// derived makes an id of a readable name and the hash of the parts.
func derived(name string, parts ...string) string {
	hash := digest(parts...)[:hashDigits]
	if s := slug(name, maxSlug); s != "" {
		return s + "-" + hash
	}
	return hash
}

// digest hashes parts so that no two lists of parts have the same hash.
func digest(parts ...string) string {
	sum := sha256.New()
	for _, p := range parts {
		part := sha256.Sum256([]byte(p))
		sum.Write(part[:])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// slug keeps letters and digits of ASCII, in lower case, and makes everything else one hyphen.
func slug(s string, limit int) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == limit {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}
