package plugin

import (
	"context"
	"errors"
	"strconv"
	"strings"

	sdk "skandha.dev/pkg/plugin"
	index "skandha.dev/services/internal/memory"
)

// position is what the record of the position says. Without an epoch there is none.
type position struct {
	revision uint64
	epoch    string
	version  string // that is stored
}

// record returns what is written in place of a version.
func (p position) record(expect string) sdk.Record {
	return sdk.Record{
		Agent: keeper, Key: positionKey, Expect: expect, Version: sortable(p.revision) + "." + p.epoch + "." + random(),
	}
}

func parsePosition(version string) (position, error) {
	parts := strings.Split(version, ".")
	revision, err := strconv.ParseUint(parts[0], 16, 64)
	if err != nil || len(parts) != 3 || revision > index.MaxRevision || parts[1] == "" {
		return position{}, wrongVersion(version)
	}
	return position{revision, parts[1], version}, nil
}

// position reads the record.
func (s *Store) position(ctx context.Context) (position, error) {
	r, err := s.read(ctx, name{keeper, positionKey})
	if err != nil || r.Version == "" {
		return position{}, err
	}
	return parsePosition(r.Version)
}

func (s *Store) knownEpoch() string {
	s.epochs.Lock()
	defer s.epochs.Unlock()
	return s.epoch
}

func (s *Store) setEpoch(epoch string) {
	s.epochs.Lock()
	defer s.epochs.Unlock()
	s.epoch = epoch
}

// Position implements memory.Store.
func (s *Store) Position(ctx context.Context) (revision uint64, err error) {
	err = s.do(ctx, "position", func() error {
		p, err := s.position(ctx)
		if err != nil {
			return err
		}
		s.setEpoch(p.epoch)
		revision = p.revision
		return nil
	})
	return revision, err
}

// errLost means that the plugin has other records than those that were written.
var errLost = errors.New("it has lost its records, or another process has wiped them; they are filled again")

// SetPosition implements memory.Store.
func (s *Store) SetPosition(ctx context.Context, revision uint64) error {
	if err := index.CheckPosition(revision); err != nil {
		return err
	}
	return s.do(ctx, "set position", func() error {
		for range maxTries {
			done, err := s.advance(ctx, revision)
			if err != nil || done {
				return err
			}
		}
		return errors.New("it has refused the position because of conflicts")
	})
}

// advance tries once to set the position.
func (s *Store) advance(ctx context.Context, revision uint64) (done bool, err error) {
	p, err := s.position(ctx)
	if err != nil {
		return false, err
	}
	if known := s.knownEpoch(); known != "" && known != p.epoch {
		return false, errLost
	}
	if p.revision >= revision {
		return true, nil
	}
	if p.epoch == "" {
		p.epoch = random()
	}
	p.revision = revision
	conflicts, err := s.send(ctx, []sdk.Record{p.record(p.version)})
	if err != nil || len(conflicts) > 0 {
		return false, err
	}
	s.setEpoch(p.epoch)
	return true, nil
}
