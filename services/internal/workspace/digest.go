package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Digest is the first half of a SHA-256: content of a session is compared with content of the same session, and a
// collision would harm nobody else.
type Digest [16]byte

// DigestOf returns the digest of a content.
func DigestOf(data []byte) Digest {
	sum := sha256.Sum256(data)
	return Digest(sum[:16])
}

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("a digest of %d characters", len(text))
	}
	_, err := hex.Decode(d[:], text)
	return err
}
