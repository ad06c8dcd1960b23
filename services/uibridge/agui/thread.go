package agui

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"skandha.dev/pkg/subject"
)

// The beginnings of the names of sessions whose thread has a name that no session can
// have.
const (
	encoded = "agui-"
	hashed  = "aguih-"
)

// SessionOf is the session of a thread. One that can be a session's name is its name;
// of another one the name is encoded, reversibly ([subject.Encode]) if that is short
// enough, and a hash if not. Two threads never share a session.
func SessionOf(thread string) subject.Session {
	if subject.Valid(thread) && !strings.HasPrefix(thread, encoded) && !strings.HasPrefix(thread, hashed) {
		return subject.Session(thread)
	}
	if s := encoded + subject.Encode(thread); subject.Valid(s) {
		return subject.Session(s)
	}
	sum := sha256.Sum256([]byte(thread))
	return subject.Session(hashed + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])))
}

// ThreadOf is the thread of a session; false if its name was hashed.
func ThreadOf(s subject.Session) (string, bool) {
	if strings.HasPrefix(string(s), hashed) {
		return "", false
	}
	if rest, ok := strings.CutPrefix(string(s), encoded); ok {
		thread, err := subject.Decode(rest)
		return thread, err == nil && SessionOf(thread) == s
	}
	return string(s), true
}
