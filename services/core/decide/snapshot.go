package decide

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// Snapshot encodes the whole state.
func (s *State) Snapshot() ([]byte, error) { return json.Marshal(s) }

// FromSnapshot decodes what Snapshot wrote and verifies it against the commit at which
// it claims to have been taken. Any difference is an error, and the caller folds the log
// again. The check covers every byte, against accident and malice: the commit's digest
// covers the core and its chains, the chains cover the window and the seen inputs, and
// the rest must equal the encoding of the state.
func FromSnapshot(b []byte, ref subject.Ref, at event.Commit, rev uint64) (*State, error) {
	s, err := Salvage(b, ref, rev)
	if err != nil {
		return nil, err
	}
	return s, s.Confirm(at)
}

// Confirm returns an error unless the snapshot of the state was taken at the commit.
func (s *State) Confirm(at event.Commit) error {
	switch {
	case at.Header.FoldVersion != FoldVersion:
		return fmt.Errorf("commit %d has fold version %d, want %d",
			s.Rev, at.Header.FoldVersion, FoldVersion)
	case s.Digest != at.Header.Digest:
		return fmt.Errorf("the state has digest %s, commit %d has %s", s.Digest, s.Rev, at.Header.Digest)
	case s.Prev != at.Header.Prev:
		return fmt.Errorf("the state follows commit %d, commit %d follows %d", s.Prev, s.Rev, at.Header.Prev)
	}
	return nil
}

// Salvage decodes a snapshot and verifies it by its own digest. Only a commit can
// confirm that it belongs to the session's history: the snapshot's commit, or one that
// folds onto it.
func Salvage(b []byte, ref subject.Ref, rev uint64) (*State, error) {
	s := New(ref)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("decoding snapshot: %w", err)
	}
	if s.Ref != ref || s.Rev != rev {
		return nil, fmt.Errorf("snapshot belongs to %s at %d, want %s at %d", s.Ref, s.Rev, ref, rev)
	}
	if err := s.verify(s.Prev); err != nil {
		return nil, err
	}
	again, err := s.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("encoding the snapshot again: %w", err)
	}
	if !bytes.Equal(again, b) {
		return nil, errors.New("snapshot is not the canonical encoding of its state")
	}
	return s, nil
}

// chained reports whether the window, the seen inputs, the grants and the project's notes match
// their chains.
func (s *State) chained() bool {
	said, seen, granted := s.WindowBase, s.SeenBase, ""
	for _, e := range s.Window {
		said = e.chain(said)
	}
	for _, in := range s.Seen {
		seen = in.chain(seen)
	}
	for _, g := range s.Grants {
		granted = chain(granted, encode(g))
	}
	return said == s.Chain && seen == s.SeenChain && granted == s.GrantChain && sumOf(s.Project) == s.ProjectSum
}

// verify recomputes the chains and the digest of a loaded state. For the digest it
// removes the stamps, which are unknown when a commit is written.
func (s *State) verify(prev uint64) error {
	if !s.chained() {
		return errors.New("snapshot: window, seen inputs, grants or project do not match their chains")
	}
	c := s.clone()
	c.Rev = prev
	c.unstamp(s.Rev)
	if d := c.digest(); d != s.Digest {
		return fmt.Errorf("snapshot content has digest %s, want %s", d, s.Digest)
	}
	return nil
}
