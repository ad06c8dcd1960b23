package agui

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"skandha.dev/pkg/subject"
)

// The prefixes of session names for threads whose names are not valid for sessions.
const (
	encoded = "agui-"
	hashed  = "aguih-"
)

// SessionOf returns the session of a thread. It has the thread's name if that is a valid
// session name; otherwise the name is encoded, reversibly ([subject.Encode]) if the result
// is short enough, and as a hash if not. Two threads never share a session.
func SessionOf(thread string) subject.Session {
	if subject.Valid(thread) && !strings.HasPrefix(thread, encoded) && !strings.HasPrefix(thread, hashed) {
		return subject.Session(thread)
	}
	if s := encoded + subject.Encode(thread); subject.Valid(s) {
		return subject.Session(s)
	}
	sum := sha256.Sum256([]byte(thread))
	return subject.Session(hashed +
		strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])))
}
