package access

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"skandha.dev/services/uibridge/contract"
)

// What bounds one-time codes.
const (
	CodeLife    = 5 * time.Minute // of a code
	maxCodes    = 16              // alive; the oldest goes
	maxGuesses  = 16              // wrong ones, then every code that is alive dies
	codeLength  = 8
	codeLetters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ" // Crockford's: nothing that looks like something else
)

// codes are those that are alive, the oldest first.
type codes struct {
	mu      sync.Mutex
	alive   []code
	guesses int // wrong ones since none was alive
}

type code struct {
	text    string
	expires time.Time
}

// ErrNoOwner says that there is no token that a one-time code could stand for.
var ErrNoOwner = errors.New("there is no owner's token that a one-time code could stand for: set ui.owner or a data directory")

// Code makes a one-time code: whoever shows it first, within [CodeLife], is the owner.
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
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // crypto/rand does not fail
	}
	for i := range b {
		b[i] = codeLetters[b[i]%byte(len(codeLetters))] // 32 divides 256
	}
	made := code{string(b[:4]) + "-" + string(b[4:]), now.Add(CodeLife)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bury(now)
	if c.alive = append(c.alive, made); len(c.alive) > maxCodes {
		c.alive = c.alive[1:]
	}
	return made.text, made.expires
}

// bury removes what has expired. When nothing is left, guessing begins anew.
func (c *codes) bury(now time.Time) {
	c.alive = slices.DeleteFunc(c.alive, func(o code) bool { return !now.Before(o.expires) })
	if len(c.alive) == 0 {
		c.guesses = 0
	}
}

// use spends a code. A wrong one counts, and in the end kills all that are alive.
func (c *codes) use(text string, now time.Time) *contract.Error {
	text = normal(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bury(now)
	// Time tells nothing useful: with few guesses, a prefix is worth no more than none.
	if i := slices.IndexFunc(c.alive, func(o code) bool { return normal(o.text) == text }); i >= 0 {
		c.alive = slices.Delete(c.alive, i, i+1)
		return nil
	}
	if c.guesses++; c.guesses >= maxGuesses {
		c.alive, c.guesses = nil, 0
	}
	return unauthenticated("the code is wrong, was used before, or is older than five minutes; `skandha ui` makes a new one")
}

// normal is a code as it may be typed.
func normal(s string) string {
	return strings.NewReplacer("-", "", " ", "", "O", "0", "I", "1", "L", "1").Replace(strings.ToUpper(s))
}
