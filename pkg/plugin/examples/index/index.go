package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
)

// name names a record.
type name struct {
	collection string
	agent      subject.Agent
	key        string
}

// index implements plugin.StorageIndex.
type index struct {
	mu      sync.Mutex
	records map[name]plugin.Record
	file    *os.File // nil: none
}

// line is one change in the file: a record, or a wipe if there is none.
type line struct {
	Collection string         `json:"collection"`
	Record     *plugin.Record `json:"record,omitempty"`
}

// open reads the file, if one is named, and appends to it from then on. The last line is
// incomplete if the program was killed while it wrote it; then nobody had an answer yet.
func (x *index) open(path string) error {
	if path == "" {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	for text := range bytes.Lines(content) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("%s is damaged; delete it, and core fills it again: %w", path, err)
		}
		x.apply(l)
	}
	if x.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	return x.file.Truncate(int64(len(content)))
}

func (x *index) apply(l line) {
	if l.Record != nil {
		x.records[name{l.Collection, l.Record.Agent, l.Record.Key}] = *l.Record
		return
	}
	for n := range x.records {
		if n.collection == l.Collection {
			delete(x.records, n)
		}
	}
}

// keep makes a change, after writing it to the file.
func (x *index) keep(l line) error {
	if x.file != nil {
		text, err := json.Marshal(l)
		if err != nil {
			return err
		}
		end, err := x.file.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		if _, err := x.file.Write(append(text, '\n')); err != nil {
			return errors.Join(err, x.file.Truncate(end)) // half a line would damage the file
		}
	}
	x.apply(l)
	return nil
}

// Write implements plugin.StorageIndex.
func (x *index) Write(
	_ context.Context, collection string, records []plugin.Record,
) (conflicts []plugin.Record, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range records {
		if stored := x.records[name{collection, r.Agent, r.Key}]; stored.Version != r.Expect {
			conflicts = append(conflicts, plugin.Record{Agent: r.Agent, Key: r.Key, Version: stored.Version})
			continue
		}
		r.Expect = ""
		if err := x.keep(line{collection, &r}); err != nil {
			return nil, err
		}
	}
	return conflicts, nil
}

// Read implements plugin.StorageIndex.
func (x *index) Read(_ context.Context, collection string, names []plugin.Record) (found []plugin.Record, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range names {
		if r, ok := x.records[name{collection, n.Agent, n.Key}]; ok {
			found = append(found, r)
		}
	}
	return found, nil
}

// Wipe implements plugin.StorageIndex.
func (x *index) Wipe(_ context.Context, collection string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.keep(line{Collection: collection})
}

// List implements plugin.StorageIndex.
func (x *index) List(_ context.Context, q plugin.IndexRequest) ([]plugin.Record, error) {
	found := x.find(q, func(r plugin.Record) bool { return r.Order > q.After })
	slices.SortFunc(found, func(a, b plugin.Record) int { return cmp.Compare(a.Order, b.Order) })
	return found[:min(q.Limit, len(found))], nil
}

// Pending implements plugin.StorageIndex.
func (x *index) Pending(_ context.Context, q plugin.IndexRequest) ([]plugin.Record, error) {
	found := x.find(q, func(r plugin.Record) bool { return r.Revision > q.After && r.Model != q.Without })
	slices.SortFunc(found, func(a, b plugin.Record) int { return cmp.Compare(a.Revision, b.Revision) })
	return found[:min(q.Limit, len(found))], nil
}

// Rank implements plugin.StorageIndex.
func (x *index) Rank(_ context.Context, q plugin.IndexRequest) (found []plugin.Record, err error) {
	if q.Vector != nil {
		found = x.find(q, func(r plugin.Record) bool { return r.Model == q.Model && len(r.Vector) == len(q.Vector) })
		for i, r := range found {
			found[i].Score = dot(r.Vector, q.Vector)
		}
	} else {
		found = score(x.find(q, func(r plugin.Record) bool { return q.Without == "" || r.Model != q.Without }), q.Words)
	}
	slices.SortFunc(found, func(a, b plugin.Record) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Order, b.Order))
	})
	return found[:min(q.Limit, len(found))], nil
}

// find returns the records of the request's collection, agent and kinds that fit. Those
// without an order can only be read.
func (x *index) find(q plugin.IndexRequest, fits func(plugin.Record) bool) (found []plugin.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n, r := range x.records {
		if n.collection == q.Collection && (n.agent == q.Agent || q.Verb == plugin.Pending) && r.Order != "" &&
			(len(q.Kinds) == 0 || slices.Contains(q.Kinds, r.Kind)) && fits(r) {
			found = append(found, r)
		}
	}
	return found
}
