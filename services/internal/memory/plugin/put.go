package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	sdk "skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
)

// The most that is written in one request, below the payload that any server allows.
const (
	maxBatch = 500       // records
	maxBytes = 512 << 10 // of JSON
)

// maxTries bounds how often a write is repeated because others write the same records.
const maxTries = 100

// Put implements memory.Store.
func (s *Store) Put(ctx context.Context, entries []index.Entry) error {
	entries, err := index.Prepare(entries)
	if err != nil {
		return err
	}
	return s.do(ctx, "put", func() error {
		if len(entries) == 0 {
			return nil
		}
		if err := s.announce(ctx, entries); err != nil {
			return err
		}
		return s.write(ctx, newest(entries))
	})
}

// Remove implements memory.Store.
func (s *Store) Remove(ctx context.Context, key index.Key, revision uint64) error {
	if err := index.CheckRemoval(key, revision); err != nil {
		return err
	}
	return s.do(ctx, "remove", func() error {
		if err := s.announce(ctx, nil); err != nil {
			return err
		}
		c := change{removed: true}
		c.Agent, c.ID, c.Revision = key.Agent, key.ID, revision
		return s.write(ctx, []change{c})
	})
}

// newest returns one change for each memory, in order.
func newest(entries []index.Entry) (out []change) {
	at := map[index.Key]int{}
	for _, e := range entries {
		i, found := at[e.Key()]
		if !found {
			at[e.Key()] = len(out)
			out = append(out, change{Entry: e})
			continue
		}
		last := out[i].Entry
		if last.Revision > e.Revision || last.Revision == e.Revision && e.Vector == nil {
			continue
		}
		if e.Vector == nil && e.Text == last.Text {
			e.Model, e.Vector = last.Model, last.Vector
		}
		out[i].Entry = e
	}
	return out
}

// announce stores the dimensions of models and, unless it is known, an epoch, before
// anything else is written.
func (s *Store) announce(ctx context.Context, entries []index.Entry) error {
	var records []sdk.Record
	dimensions := map[string]int{}
	for _, e := range entries {
		want, found := dimensions[e.Model]
		switch {
		case e.Vector == nil:
		case !found:
			dimensions[e.Model] = len(e.Vector)
			records = append(records, sdk.Record{
				Agent: keeper, Key: modelKey(e.Model), Version: strconv.Itoa(len(e.Vector)) + "." + random(),
			})
		case want != len(e.Vector):
			return index.WrongDimension(e.Model, len(e.Vector), want)
		}
	}
	fresh := position{epoch: random()}
	if s.knownEpoch() == "" {
		records = append(records, fresh.record(""))
	}
	if len(records) == 0 {
		return nil
	}
	stored, err := s.send(ctx, records)
	if err != nil {
		return err
	}
	if s.knownEpoch() == "" {
		if version, found := stored[name{keeper, positionKey}]; found {
			if fresh, err = parsePosition(version); err != nil {
				return err
			}
		}
		s.setEpoch(fresh.epoch)
	}
	for model, got := range dimensions {
		if version, found := stored[name{keeper, modelKey(model)}]; found {
			if err := checkDimension(model, got, version); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkDimension compares with the dimension in the version of a model's record.
func checkDimension(model string, got int, version string) error {
	number, _, _ := strings.Cut(version, ".")
	want, err := strconv.Atoi(number)
	if err != nil || want < 1 {
		return wrongVersion(version)
	}
	if got != want {
		return index.WrongDimension(model, got, want)
	}
	return nil
}

// name names a record.
type name struct {
	agent subject.Agent
	key   string
}

// write makes changes. One that meets another version is tried again unless that is newer.
func (s *Store) write(ctx context.Context, changes []change) error {
	for range maxTries {
		records := make([]sdk.Record, len(changes))
		for i, c := range changes {
			var err error
			if records[i], err = s.recordOf(ctx, c); err != nil {
				return err
			}
		}
		stored, err := s.sendAll(ctx, records)
		if err != nil {
			return err
		}
		var again []change
		for i, c := range changes {
			version, conflict := stored[name{records[i].Agent, records[i].Key}]
			if !conflict {
				continue
			}
			known, err := parseVersion(version)
			if err != nil {
				return err
			}
			if c.replaces(known) {
				c.expect = version
				again = append(again, c)
			}
		}
		if changes = again; len(changes) == 0 {
			return nil
		}
	}
	return fmt.Errorf("it has refused %d records %d times because of conflicts", len(changes), maxTries)
}

// replaces reports whether the change is to be made although a version is stored.
func (c change) replaces(stored version) bool {
	switch {
	case stored.revision != c.Revision:
		return stored.revision < c.Revision
	case c.removed:
		return !stored.removed
	}
	return !stored.removed && c.Vector != nil
}

// recordOf returns what is to be written. An entry without a vector gets the stored one, if
// the text is the same.
func (s *Store) recordOf(ctx context.Context, c change) (sdk.Record, error) {
	stored, err := parseVersion(c.expect)
	if err != nil || c.removed || c.Vector != nil || stored.model == "" || stored.text != digest(c.Text) {
		r, wrong := c.record()
		return r, errors.Join(err, wrong)
	}
	found, err := s.read(ctx, name{c.Agent, keyOf(c.ID)})
	if err != nil {
		return sdk.Record{}, err
	}
	if found.Version == c.expect { // else the write meets another conflict
		with, err := vectorOf(found, c.Entry)
		if err != nil {
			return sdk.Record{}, err
		}
		c.Model, c.Vector = with.Model, with.Vector
	}
	return c.record()
}

// sendAll writes records in batches, and returns the versions of those that were not written.
func (s *Store) sendAll(ctx context.Context, records []sdk.Record) (map[name]string, error) {
	all := map[name]string{}
	for len(records) > 0 {
		n, bytes := 0, 0
		for n < min(maxBatch, len(records)) && (n == 0 || bytes+size(records[n]) <= maxBytes) {
			bytes += size(records[n])
			n++
		}
		some, err := s.send(ctx, records[:n])
		if err != nil {
			return nil, err
		}
		maps.Copy(all, some)
		records = records[n:]
	}
	return all, nil
}

// send writes records, and returns the versions of those that were not written.
func (s *Store) send(ctx context.Context, records []sdk.Record) (map[name]string, error) {
	conflicts, err := s.ask(ctx, sdk.IndexRequest{Verb: sdk.Write, Records: records})
	if refused(err) {
		return nil, fmt.Errorf("%w: storage plugin %s refuses it: %s", index.ErrInvalid, s.name, err.Error())
	}
	if err != nil {
		return nil, err
	}
	sent := map[name]sdk.Record{}
	for _, r := range records {
		sent[name{r.Agent, r.Key}] = r
	}
	stored := map[name]string{}
	for _, c := range conflicts {
		r, found := sent[name{c.Agent, c.Key}]
		switch {
		case !found:
			return nil, fmt.Errorf("it refused the record %.80q of agent %.80q, which it was not sent", c.Key, c.Agent)
		case c.Version == r.Expect:
			return nil, fmt.Errorf("it refused the record %.80q of agent %.80q, which has the expected version", c.Key, c.Agent)
		case c.Version != r.Version: // else an earlier copy of the request has arrived
			stored[name{c.Agent, c.Key}] = c.Version
		}
	}
	return stored, nil
}

// read returns a record, the zero one if there is none.
func (s *Store) read(ctx context.Context, n name) (sdk.Record, error) {
	found, err := s.ask(ctx, sdk.IndexRequest{Verb: sdk.Read, Records: []sdk.Record{{Agent: n.agent, Key: n.key}}})
	switch {
	case err != nil || len(found) == 0:
		return sdk.Record{}, err
	case len(found) > 1 || found[0].Agent != n.agent || found[0].Key != n.key || found[0].Version == "":
		return sdk.Record{}, fmt.Errorf("it returned other records than %s of agent %s", n.key, n.agent)
	}
	return found[0], nil
}
