package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"skandha.dev/services/uibridge/contract"
)

// The bounds of one-time codes. 80 random bits cannot be guessed within a code's lifetime,
// so wrong codes need no rate limit, which could be used to lock out holders of a right
// one.
const (
	CodeLife    = 5 * time.Minute // lifetime of a code
	maxCodes    = 16              // valid at a time; the oldest is dropped
	codeLength  = 16
	codeGroup   = 4                                  // characters between two dashes
	codeLetters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ" // Crockford's alphabet: no characters that look alike
)

// codes holds the valid codes, oldest first.
type codes struct {
	mu    sync.Mutex
	alive []code
}

type code struct {
	text    string
	expires time.Time
}

// ErrNoOwner reports that no owner's token exists for a one-time code.
var ErrNoOwner = errors.New("no owner's token exists for a one-time code; set ui.owner or a data directory")

// Code creates a one-time code: the first client that sends it within [CodeLife] is logged
// in as the owner.
func (a *Access) Code(context.Context) (text string, expires time.Time, err error) {
	if a.named(Owner) == nil {
		return "", time.Time{}, ErrNoOwner
	}
	a.count.codes.Add(1)
	text, expires = a.codes.make(time.Now())
	return text, expires, nil
}

func (c *codes) make(now time.Time) (string, time.Time) {
	var b [codeLength]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	for i := range b {
		b[i] = codeLetters[b[i]%byte(len(codeLetters))] // 32 divides 256
	}
	var groups []string
	for g := range slices.Chunk(b[:], codeGroup) {
		groups = append(groups, string(g))
	}
	made := code{strings.Join(groups, "-"), now.Add(CodeLife)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropExpired(now)
	if c.alive = append(c.alive, made); len(c.alive) > maxCodes {
		c.alive = c.alive[1:]
	}
	return made.text, made.expires
}

// dropExpired removes expired codes.
func (c *codes) dropExpired(now time.Time) {
	c.alive = slices.DeleteFunc(c.alive, func(o code) bool { return !now.Before(o.expires) })
}

// use consumes a code.
func (c *codes) use(text string, now time.Time) *contract.Error {
	text = normal(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropExpired(now)
	same := func(o code) bool { return subtle.ConstantTimeCompare([]byte(normal(o.text)), []byte(text)) == 1 }
	if i := slices.IndexFunc(c.alive, same); i >= 0 {
		c.alive = slices.Delete(c.alive, i, i+1)
		return nil
	}
	return unauthenticated(
		"the code is wrong, was used before, or is older than five minutes; run `skandha ui` for a new one")
}

// normal normalizes a code as a person may type it.
func normal(s string) string {
	return strings.NewReplacer("-", "", " ", "", "O", "0", "I", "1", "L", "1").Replace(strings.ToUpper(s))
}
