// Package notes provides the tools notes:add and notes:search, and memory:retrieve for
// services and hooks. A [Book] keeps the notes: the workspace, or a storage
// plugin. An agent sees only its own notes.
//
// In the workspace an agent's notes are lines of JSON, notes/<agent>.jsonl. Several
// runners on one workspace may add at once: each note is one write to the end of the
// file, and a line that was torn by a crash is skipped.
//
// A note keeps the labels of the texts from outside that its call followed, and whatever finds it
// returns them.
package notes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/filesystem"
)

const (
	dir = filesystem.NotesDir
	// maxText is the longest note, in bytes.
	maxText = 16 << 10
	// maxRead is how much of the newest notes is searched, in bytes.
	maxRead = 16 << 20
)

// Note is one note.
type Note struct {
	ID   string    `json:"id"` // the call that added it
	Time time.Time `json:"time"`
	Text string    `json:"text"`
	// After lists the labels of the texts from outside that the call followed.
	After []string `json:"after,omitempty"`
}

// Book keeps the notes of agents.
type Book interface {
	// Add keeps the note. The same id again is the same note.
	Add(ctx context.Context, agent subject.Agent, n Note) error
	// Search returns the notes that match best, at most limit, and how many match.
	// With a query, a note of the workspace matches if it contains all of its words.
	Search(ctx context.Context, agent subject.Agent, query string, limit int) (found []Note, total int, err error)
	// Retrieve returns the notes that share words with the query, best first, at most limit.
	Retrieve(ctx context.Context, agent subject.Agent, query string, limit int) ([]Memory, error)
}

// ErrUnknown means that the outcome of an addition is unknown.
var ErrUnknown = errors.New("the note may have been kept")

// InWorkspace returns a Book that keeps notes in the workspace.
func InWorkspace(root *os.Root) Book { return &book{root: root} }

// Tools returns the tools of this package for one book.
func Tools(b Book) []tools.Tool { return []tools.Tool{add(b), search(b), retrieve(b)} }

func add(b Book) tools.Tool {
	return tools.New(tool.Spec{
		Name: "notes:add",
		Description: "Writes a note for later: a fact, a decision or a thing to do that should outlive this conversation. " +
			"Find it again with notes:search.",
		Args: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{
			"text":{"type":"string","minLength":1,"maxLength":%d,"description":"the note, understandable on its own"}},
			"required":["text"],"additionalProperties":false}`, maxText)),
		Idempotent: false, Risk: tool.RiskLow, Permissions: []string{"fs.write"},
		ScenarioTags: []string{"task_execution", "creative_work"}, TimeoutMS: 10_000,
	}, func(ctx context.Context, c tools.Call, args struct {
		Text string `json:"text"`
	},
	) tool.Result {
		n := Note{ID: c.ID, Time: time.Now().UTC().Truncate(time.Second), Text: args.Text, After: c.After}
		switch err := b.Add(ctx, c.Agent, n); {
		case errors.Is(err, ErrUnknown):
			return tool.Failure(tool.CodeOutcomeUnknown, err.Error())
		case err != nil:
			return tools.Fail(fmt.Errorf("adding the note: %w", err))
		}
		return tool.OK(n)
	})
}

func search(b Book) tools.Tool {
	return tools.New(tool.Spec{
		Name: "notes:search",
		Description: "Finds notes that were written with notes:add, newest first. Without a query it gives the newest; " +
			"with one, those that hold all of its words, in any case and order.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"query":{"type":"string","maxLength":500,"default":"","description":"words that the note must hold"},
			"limit":{"type":"integer","minimum":1,"maximum":100,"default":20}},
			"additionalProperties":false}`),
		Idempotent: true, Risk: tool.RiskLow, Permissions: []string{"fs.read"},
		ScenarioTags: []string{"information_retrieval"}, TimeoutMS: 10_000,
	}, func(ctx context.Context, c tools.Call, args struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	},
	) tool.Result {
		if args.Limit <= 0 {
			args.Limit = 20
		}
		found, total, err := b.Search(ctx, c.Agent, args.Query, args.Limit)
		if err != nil {
			return tools.Fail(fmt.Errorf("searching the notes: %w", err))
		}
		var after []string
		for _, n := range found {
			after = executor.AddLabels(after, n.After...)
		}
		return tools.Labelled(tool.OK(map[string]any{"notes": found, "found": total}), after)
	})
}

// book holds the notes of all agents of a workspace.
type book struct {
	root *os.Root
	mu   sync.Mutex // one note at a time from this process
}

func file(agent subject.Agent) (string, error) {
	if !subject.Valid(agent) {
		return "", fmt.Errorf("agent %q is not a valid id", string(agent))
	}
	return filepath.Join(dir, string(agent)+".jsonl"), nil
}

// Add writes the note to the end of the file.
func (b *book) Add(_ context.Context, agent subject.Agent, n Note) error {
	name, err := file(agent)
	if err != nil {
		return err
	}
	line, err := json.Marshal(n)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.torn(name) {
		line = append([]byte("\n"), line...)
	}
	_, err = filesystem.Append(b.root, name, append(line, '\n'))
	return err
}

// torn reports whether the file ends in the middle of a line: a process crashed
// while writing, and the next note must not become part of that line.
func (b *book) torn(name string) bool {
	f, info, err := filesystem.OpenRegular(b.root, name, os.O_RDONLY)
	if err != nil || info.Size() == 0 {
		return false
	}
	defer func() { _ = f.Close() }()
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// Search returns the newest notes that match and counts all that do.
func (b *book) Search(ctx context.Context, agent subject.Agent, query string, limit int) ([]Note, int, error) {
	words := strings.Fields(strings.ToLower(query))
	fits := []Note{}
	total := 0
	err := b.each(ctx, agent, func(n Note) {
		if !holds(n.Text, words) {
			return
		}
		total++
		if fits = append(fits, n); len(fits) > limit {
			fits = fits[1:]
		}
	})
	slices.Reverse(fits)
	return fits, total, err
}

// each calls f with the newest [maxRead] bytes of notes, oldest first.
func (b *book) each(ctx context.Context, agent subject.Agent, f func(Note)) error {
	name, err := file(agent)
	if err != nil {
		return err
	}
	in, info, err := filesystem.OpenRegular(b.root, name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	lines := bufio.NewScanner(io.NewSectionReader(in, max(0, info.Size()-maxRead), maxRead))
	lines.Buffer(nil, 8*maxText)
	for lines.Scan() {
		if err := ctx.Err(); err != nil {
			return err
		}
		var n Note
		if json.Unmarshal(bytes.TrimSpace(lines.Bytes()), &n) == nil {
			f(n)
		}
	}
	return lines.Err()
}

func holds(text string, words []string) bool {
	text = strings.ToLower(text)
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
