package openai

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"skandha.dev/pkg/subject"
)

// conversations remembers from which session an answer was given, keyed by the messages up
// to it. Its size is limited: the least recently used entry is dropped.
type conversations struct {
	mu    sync.Mutex
	known *simplelru.LRU[key, subject.Session]
}

// key is a hash of principal, agent and messages.
type key [sha256.Size]byte

// remembered is an entry that was taken out.
type remembered struct {
	key     key
	session subject.Session
}

func newConversations(most int) *conversations {
	known, _ := simplelru.NewLRU[key, subject.Session](most, nil) // fails only if the size is not positive
	return &conversations{known: known}
}

// keyOf hashes each part with its length, so that different lists have different hashes.
func keyOf(parts ...string) key {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return key(h.Sum(nil))
}

// conversationKey returns the key of a conversation. Clients may trim the texts they got.
func conversationKey(principal string, agent subject.Agent, messages []message) key {
	parts := []string{"conversation", principal, string(agent)}
	for _, m := range messages {
		parts = append(parts, m.Role, strings.TrimSpace(m.text))
	}
	return keyOf(parts...)
}

// requestKey returns the key of a request that may be sent again.
func requestKey(principal string, agent subject.Agent, id string) key {
	return keyOf("request", principal, string(agent), id)
}

func (c *conversations) put(k key, s subject.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Add(k, s)
}

// take returns the session and removes it from this key.
func (c *conversations) take(k key) (subject.Session, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.known.Peek(k)
	c.known.Remove(k)
	return s, ok
}

func (c *conversations) get(k key) (subject.Session, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.Get(k)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
