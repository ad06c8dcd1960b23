package toolrunner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/plugincall"
	"skandha.dev/services/toolrunner/tools/notes"
)

// notesCollection is where a storage plugin keeps notes.
const notesCollection = "notes"

// book returns the configured storage for notes.
func (r *runner) book(root *os.Root) notes.Book {
	if r.cfg.NotesPlugin == "" {
		return notes.InWorkspace(root)
	}
	return &stored{r: r, plugin: subject.Plugin(r.cfg.NotesPlugin)}
}

// stored keeps notes in a storage plugin: collection "notes", the note's id as key.
type stored struct {
	r      *runner
	plugin subject.Plugin
}

// Add implements notes.Book.
func (s *stored) Add(ctx context.Context, agent subject.Agent, n notes.Note) error {
	value, err := json.Marshal(n)
	if err != nil {
		return err
	}
	_, err = s.ask(ctx, plugin.StorageRequest{
		Verb: plugin.Put, Agent: agent, Collection: notesCollection, Key: n.ID, Value: value, Text: n.Text,
	})
	if errors.Is(err, plugincall.ErrLost) || errors.Is(err, plugincall.ErrUnreadable) || ctx.Err() != nil {
		return fmt.Errorf("%w: %w", notes.ErrUnknown, err)
	}
	return err
}

// Search implements notes.Book. The plugin does not report how many match beyond the limit.
func (s *stored) Search(ctx context.Context, agent subject.Agent, query string, limit int) ([]notes.Note, int, error) {
	memories, err := s.Retrieve(ctx, agent, query, limit)
	if err != nil {
		return nil, 0, err
	}
	found := []notes.Note{}
	for _, m := range memories {
		found = append(found, m.Note)
	}
	return found, len(found), nil
}

// Retrieve implements notes.Book. The order and the scores are the plugin's.
func (s *stored) Retrieve(ctx context.Context, agent subject.Agent, query string, limit int) ([]notes.Memory, error) {
	reply, err := s.ask(ctx, plugin.StorageRequest{
		Verb: plugin.Search, Agent: agent, Collection: notesCollection, Query: query, Limit: limit,
	})
	if err != nil {
		return nil, err
	}
	found := []notes.Memory{}
	for _, e := range reply.Entries[:min(len(reply.Entries), limit)] {
		m := notes.Memory{Score: e.Score}
		if err := json.Unmarshal(e.Value, &m.Note); err != nil {
			return nil, fmt.Errorf("plugin %s: the entry %q is not a note: %w", s.plugin, e.Key, err)
		}
		found = append(found, m)
	}
	return found, nil
}

func (s *stored) ask(ctx context.Context, q plugin.StorageRequest) (plugin.StorageReply, error) {
	p := s.r.plugins.Snapshot().Get(s.plugin)
	switch {
	case p == nil || p.State == plugin.Gone:
		return plugin.StorageReply{}, fmt.Errorf(
			"the storage plugin %s is not available; start it, or configure another notes_plugin", s.plugin)
	case p.Manifest.Storage == nil:
		return plugin.StorageReply{}, fmt.Errorf("plugin %s declares no storage", s.plugin)
	}
	body, err := json.Marshal(q)
	if err != nil {
		return plugin.StorageReply{}, err
	}
	answer, err := s.r.plugins.Ask(ctx, plugincall.Request{
		Plugin: s.plugin, Hash: p.Hash, Subject: subject.Storage(s.plugin, string(q.Verb)), Body: body,
		Repeatable: true, // every verb is, by contract
	})
	if err != nil {
		return plugin.StorageReply{}, err
	}
	var reply plugin.StorageReply
	if len(answer) > 0 {
		if err := json.Unmarshal(answer, &reply); err != nil {
			return plugin.StorageReply{}, fmt.Errorf("reading the answer of plugin %s: %w", s.plugin, err)
		}
	}
	return reply, nil
}
