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

// FromSnapshot decodes what Snapshot wrote and verifies it against the commit it
// claims to stand at. Any difference is an error: the log is refolded. Every
// byte is covered, against accident and malice: the commit's digest covers the
// core and its chains, the chains cover the window and the inputs seen, and
// what is none of it must be exactly what encoding the state gives.
func FromSnapshot(b []byte, ref subject.Ref, at event.Commit, rev uint64) (*State, error) {
	s := New(ref)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("decoding snapshot: %w", err)
	}
	switch {
	case s.Ref != ref || s.Rev != rev:
		return nil, fmt.Errorf("snapshot is of %s at %d, want %s at %d", s.Ref, s.Rev, ref, rev)
	case at.Header.FoldVersion != FoldVersion:
		return nil, fmt.Errorf("commit %d was folded by version %d, this is %d", rev, at.Header.FoldVersion, FoldVersion)
	case s.Digest != at.Header.Digest:
		return nil, fmt.Errorf("snapshot has digest %s, commit %d has %s", s.Digest, rev, at.Header.Digest)
	}
	if err := s.verify(at.Header.Prev); err != nil {
		return nil, err
	}
	again, err := s.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("encoding the snapshot again: %w", err)
	}
	if !bytes.Equal(again, b) {
		return nil, errors.New("snapshot is not what encoding its state gives")
	}
	return s, nil
}

// verify recomputes the chains and the digest of a loaded state. Stamps that the
// commit could not yet know are taken back for it.
func (s *State) verify(prev uint64) error {
	said, seen := s.WindowBase, s.SeenBase
	for _, e := range s.Window {
		said = e.chain(said)
	}
	for _, in := range s.Seen {
		seen = in.chain(seen)
	}
	granted := ""
	for _, g := range s.Grants {
		granted = chain(granted, encode(g))
	}
	if said != s.Chain || seen != s.SeenChain || granted != s.GrantChain {
		return errors.New("snapshot's window, inputs seen or grants do not give the chains")
	}
	c := s.clone()
	c.Rev = prev
	c.unstamp(s.Rev)
	if d := c.digest(); d != s.Digest {
		return fmt.Errorf("snapshot content has digest %s, not %s", d, s.Digest)
	}
	return nil
}
