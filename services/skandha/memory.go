package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/buildinfo"
	"skandha.dev/services/internal/coreapi"
)

// memoryCmd shows and changes what an agent remembers.
type memoryCmd struct {
	List    memoryListCmd    `cmd:"" default:"withargs" help:"List what an agent remembers, newest first. A line that begins with ! has a text from a tool or the web, which the agent reads as data and not as instructions."`
	Search  memorySearchCmd  `cmd:"" help:"Find what an agent remembers about something, best match first."`
	Show    memoryShowCmd    `cmd:"" help:"Show all of a memory: its text, where it came from and, for a turn, how it ended."`
	Add     memoryAddCmd     `cmd:"" help:"Have an agent remember something, in your words."`
	Correct memoryCorrectCmd `cmd:"" help:"Replace the text of a memory."`
	Pin     memoryPinCmd     `cmd:"" help:"Show a memory to the model in every turn, whether or not it matches what is said."`
	Unpin   memoryUnpinCmd   `cmd:"" help:"Show a memory to the model only when it matches what is said."`
	Forget  memoryForgetCmd  `cmd:"" help:"Delete memories for good."`
}

// ofAgent is the agent whose memory a command is about.
type ofAgent struct {
	Agent string `short:"a" default:"main" placeholder:"NAME" help:"Whose memory; agents do not see each other's."`
}

// query returns a request about the agent's memory.
func (o ofAgent) query(op coreapi.MemoryOp) coreapi.MemoryQuery {
	return coreapi.MemoryQuery{Op: op, Agent: subject.Agent(o.Agent), Caller: writer()}
}

// Validate implements kong's interface.
func (o ofAgent) Validate() error {
	if !subject.Valid(o.Agent) {
		return fmt.Errorf("--agent: %w: %q", subject.ErrInvalidID, o.Agent)
	}
	return nil
}

// memories selects and prints some memories.
type memories struct {
	Kind  []memory.Kind `short:"k" enum:"fact,note,experience,lesson,capability" placeholder:"KIND" help:"Only this kind: fact, note, experience (a turn), lesson (how a failed call was corrected) or capability (a tool that has served a kind of request); may be repeated."`
	Limit int           `short:"n" default:"20" help:"Maximum number of memories, up to 100."`
	JSON  bool          `help:"Print JSON."`
}

type memoryListCmd struct {
	ofAgent
	memories
	After string `placeholder:"CURSOR" help:"Continue after the page that returned this cursor."`
}

// Run implements the command.
func (l *memoryListCmd) Run(ctx context.Context, g *globals) error {
	q := l.query(coreapi.MemoryList)
	q.Kinds, q.Limit, q.After = l.Kind, l.Limit, l.After
	var a coreapi.MemoryAnswer
	if err := administer(ctx, g, coreapi.VerbMemory, q, &a); err != nil {
		return err
	}
	if l.JSON {
		return printJSON(os.Stdout, a, true)
	}
	if len(a.Memories) == 0 {
		fmt.Println(l.nothing())
	} else if err := printMemories(os.Stdout, a.Memories); err != nil {
		return err
	}
	printHow(os.Stdout, a)
	if a.Next != "" {
		fmt.Printf("more: %s memory list%s --after %s\n", buildinfo.Command(), l.flags(), shellQuote(a.Next))
	}
	return nil
}

// nothing says that there is no memory, and how there can be.
func (l *memoryListCmd) nothing() string {
	switch {
	case l.After != "":
		return "No more memories."
	case len(l.Kind) > 0:
		return fmt.Sprintf("Agent %s has no memories of this kind.", l.Agent)
	}
	return fmt.Sprintf("Agent %[1]s remembers nothing yet. With memory_policy: vector-db in its configuration, it learns\n"+
		"from each turn. You can add something with:  %[2]s memory add --agent %[1]s TEXT", l.Agent, buildinfo.Command())
}

// flags returns the flags that select the same memories.
func (l *memoryListCmd) flags() string {
	s := " --agent " + l.Agent
	for _, k := range l.Kind {
		s += " --kind " + string(k)
	}
	return s + fmt.Sprintf(" --limit %d", l.Limit)
}

type memorySearchCmd struct {
	Query []string `arg:"" help:"What to look for."`
	ofAgent
	memories
}

// Run implements the command.
func (s *memorySearchCmd) Run(ctx context.Context, g *globals) error {
	q := s.query(coreapi.MemorySearch)
	q.Text, q.Kinds, q.Limit = strings.Join(s.Query, " "), s.Kind, s.Limit
	var a coreapi.MemoryAnswer
	if err := administer(ctx, g, coreapi.VerbMemory, q, &a); err != nil {
		return err
	}
	if s.JSON {
		return printJSON(os.Stdout, a, true)
	}
	if len(a.Hits) == 0 {
		fmt.Println("Nothing matches.")
	} else if err := printHits(os.Stdout, a.Hits); err != nil {
		return err
	}
	printHow(os.Stdout, a)
	return nil
}

// oneMemory is the arguments of commands about one memory.
type oneMemory struct {
	ID string `arg:"" help:"Memory, as listed."`
	ofAgent
}

type memoryShowCmd struct {
	oneMemory
	JSON bool `help:"Print JSON."`
}

// Run implements the command.
func (s *memoryShowCmd) Run(ctx context.Context, g *globals) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	found, err := s.find(ctx, c, s.ID)
	if err != nil {
		return err
	}
	if s.JSON {
		return printJSON(os.Stdout, found[0], true)
	}
	return printMemory(os.Stdout, found[0])
}

// find returns the memories with the ids, in their order. An id that does not exist is an
// error. Core answers no request for one memory, so the pages of all are searched.
func (o ofAgent) find(ctx context.Context, c *connection, ids ...string) ([]memory.Memory, error) {
	missing, found := map[string]bool{}, map[string]memory.Memory{}
	for _, id := range ids {
		missing[id] = true
	}
	q := o.query(coreapi.MemoryList)
	for q.Limit = 100; len(missing) > 0; {
		var a coreapi.MemoryAnswer
		if err := c.Administer(ctx, coreapi.VerbMemory, q, &a); err != nil {
			return nil, err
		}
		for _, m := range a.Memories {
			if missing[m.ID] {
				found[m.ID] = m
				delete(missing, m.ID)
			}
		}
		if q.After = a.Next; q.After == "" {
			break
		}
	}
	var out []memory.Memory
	for _, id := range ids {
		if missing[id] {
			return nil, fmt.Errorf("agent %s has no memory %q; %s memory list --agent %[1]s lists them", o.Agent, id,
				buildinfo.Command())
		}
		out = append(out, found[id])
	}
	return out, nil
}

type memoryAddCmd struct {
	Text []string    `arg:"" help:"What to remember."`
	Kind memory.Kind `short:"k" enum:"fact,note" default:"fact" placeholder:"KIND" help:"fact or note."`
	Pin  bool        `help:"Show it to the model in every turn."`
	ofAgent
	JSON bool `help:"Print the memory as JSON."`
}

// Run implements the command.
func (a *memoryAddCmd) Run(ctx context.Context, g *globals) error {
	q := a.query(coreapi.MemoryStore)
	q.Text, q.Kind, q.Pinned = strings.Join(a.Text, " "), a.Kind, &a.Pin
	return change(ctx, g, q, a.JSON, "remembered as")
}

type memoryCorrectCmd struct {
	ID   string   `arg:"" help:"Memory, as listed."`
	Text []string `arg:"" help:"What it is to say."`
	ofAgent
	JSON bool `help:"Print the memory as JSON."`
}

// Run implements the command.
func (r *memoryCorrectCmd) Run(ctx context.Context, g *globals) error {
	q := r.query(coreapi.MemoryCorrect)
	if q.ID, q.Text = r.ID, strings.Join(r.Text, " "); q.Text == "" {
		return fmt.Errorf("the text is empty; to delete a memory: %s memory forget %s", buildinfo.Command(), shellQuote(r.ID))
	}
	return change(ctx, g, q, r.JSON, "corrected")
}

type memoryPinCmd struct{ oneMemory }

// Run implements the command.
func (p *memoryPinCmd) Run(ctx context.Context, g *globals) error {
	return p.pin(ctx, g, true, "pinned")
}

type memoryUnpinCmd struct{ oneMemory }

// Run implements the command.
func (p *memoryUnpinCmd) Run(ctx context.Context, g *globals) error {
	return p.pin(ctx, g, false, "no longer pinned:")
}

func (o oneMemory) pin(ctx context.Context, g *globals, on bool, done string) error {
	q := o.query(coreapi.MemoryCorrect)
	q.ID, q.Pinned = o.ID, &on
	return change(ctx, g, q, false, done)
}

// change stores or corrects a memory and prints what was done.
func change(ctx context.Context, g *globals, q coreapi.MemoryQuery, asJSON bool, done string) error {
	var a coreapi.MemoryAnswer
	if err := administer(ctx, g, coreapi.VerbMemory, q, &a); err != nil {
		return err
	}
	switch {
	case a.Memory == nil:
		return errors.New("core answered without the memory")
	case asJSON:
		return printJSON(os.Stdout, a.Memory, true)
	}
	fmt.Printf("%s %s\n", done, clean(a.Memory.ID))
	return nil
}

type memoryForgetCmd struct {
	IDs []string `arg:"" name:"id" help:"Memories, as listed."`
	ofAgent
	Yes bool `short:"y" help:"Do not ask for confirmation."`
}

// Run implements the command. Nothing is deleted if one of the ids does not exist.
func (f *memoryForgetCmd) Run(ctx context.Context, g *globals) error {
	c, err := g.connectRunning(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	all, err := f.find(ctx, c, f.IDs...)
	if err != nil {
		return err
	}
	if !f.Yes {
		if err := f.confirm(ctx, all); err != nil {
			return err
		}
	}
	for _, m := range all {
		q := f.query(coreapi.MemoryForget)
		q.ID = m.ID
		if err := c.Administer(ctx, coreapi.VerbMemory, q, &coreapi.MemoryAnswer{}); err != nil {
			return fmt.Errorf("%s was not deleted: %w", clean(m.ID), err)
		}
		fmt.Println("forgot " + clean(m.ID))
	}
	return nil
}

// confirm shows what will be deleted, and returns an error unless the user agrees.
func (f *memoryForgetCmd) confirm(ctx context.Context, all []memory.Memory) error {
	if err := printMemories(os.Stderr, all); err != nil {
		return err
	}
	what := "this memory"
	if len(all) > 1 {
		what = fmt.Sprintf("these %d memories", len(all))
	}
	if !isTerminal(os.Stdin) {
		return fmt.Errorf("nothing was deleted; add --yes to delete %s", what)
	}
	yes, err := agreed(ctx, fmt.Sprintf("Delete %s for good?", what))
	if err == nil && !yes {
		err = errors.New("nothing was deleted")
	}
	return err
}
