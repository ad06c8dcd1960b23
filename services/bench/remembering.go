package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/memory/sqlite"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/providerapi"
)

// The agents of B22, and what the first one remembers.
const (
	mindful      = "mindful"
	forgetful    = "forgetful"
	ownMemories  = 500
	memoryWords  = 24
	benchEmbeds  = "bench/embed"
	knownTexts   = 100
	settlingTime = 5 * time.Millisecond // between two looks at what has no vector yet
)

// remembering is B22: a turn of an agent that searches 500 memories with vectors, beside the
// same turn of an agent of the same core that remembers nothing. Both say the same texts, each
// once. The core has the vector of a text before the turn begins, so the embedder costs
// nothing. What turns leave for the memory is written while turns of both agents run.
func remembering(ctx context.Context, o Options) (rows []Row, err error) {
	for _, sync := range []natsserver.Sync{natsserver.Always, natsserver.Relaxed} {
		ours, raw, err := rememberingWith(ctx, o, sync)
		if err != nil {
			return rows, err
		}
		what := fmt.Sprintf("a turn with %d memories, to none, sync %s", ownMemories, sync)
		rows = append(rows, ratio("B22", what, ours, raw, 1.3))
	}
	return rows, nil
}

func rememberingWith(ctx context.Context, o Options, sync natsserver.Sync) (ours, raw time.Duration, err error) {
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // scratch
	index, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "memory.db"), Logger: quiet})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, index.Close()) }()
	r := &rig{dir: dir, index: index, config: core.Config{Agents: map[string]core.AgentConfig{
		mindful:   {Guide: core.GuideConfig{SystemPrompt: "Answer.", MemoryPolicy: guide.VectorDB}},
		forgetful: {Guide: core.GuideConfig{SystemPrompt: "Answer."}},
	}}}
	if err := r.start(ctx, sync); err != nil {
		return 0, 0, err
	}
	defer r.stop()
	m, err := newMind(ctx, r)
	if err != nil {
		return 0, 0, err
	}
	if err := m.fill(ctx, index); err != nil {
		return 0, 0, err
	}
	return m.compare(ctx, o.n(300))
}

// mind gives memories to an agent and asks for them.
type mind struct {
	caller      *bus.Caller
	with, plain *talker
	chance      *rand.Rand
}

func newMind(ctx context.Context, r *rig) (*mind, error) {
	provider, err := r.connect(ctx, "embedder")
	if err != nil {
		return nil, err
	}
	r.stops = append(r.stops, provider.Close)
	if err := serveEmbedder(provider); err != nil {
		return nil, err
	}
	b, err := r.connect(ctx, "talker")
	if err != nil {
		return nil, err
	}
	r.stops = append(r.stops, b.Close)
	m := &mind{chance: rand.New(rand.NewPCG(5, 6))} //nolint:gosec // the same texts in each run
	if m.caller, err = b.NewCaller(); err != nil {
		return nil, err
	}
	if m.with, err = newTalkerTo(b, subject.Ref{Agent: mindful, Session: "one"}); err != nil {
		return nil, err
	}
	m.plain, err = newTalkerTo(b, subject.Ref{Agent: forgetful, Session: "one"})
	return m, err
}

// serveEmbedder answers as the provider service with an embedder that takes no time. The same
// text always has the same vector.
func serveEmbedder(b *journal.Journal) error {
	for verb, f := range map[string]func(*bus.Request) (any, error){
		providerapi.VerbStatus: func(*bus.Request) (any, error) { return providerapi.Embedder{Model: benchEmbeds}, nil },
		providerapi.VerbEmbed: func(q *bus.Request) (any, error) {
			var r providerapi.EmbedRequest
			if err := json.Unmarshal(q.Data, &r); err != nil {
				return nil, err
			}
			a := providerapi.EmbedAnswer{Model: benchEmbeds, Dimension: benchDimension}
			for _, t := range r.Texts {
				h := fnv.New64a()
				_, _ = h.Write([]byte(t)) // never fails
				a.Vectors = append(a.Vectors, embed.Encode(randomVector(rand.New(rand.NewPCG(h.Sum64(), 0)))))
			}
			return a, nil
		},
	} {
		if _, err := b.Respond(subject.Service(providerapi.EmbedderName, verb), providerapi.EmbedderName,
			providerapi.EmbedderName, func(q *bus.Request) { coreapi.Answer(q, f) }); err != nil {
			return err
		}
	}
	return b.Conn().Flush()
}

// ask asks about the memories of the agent that has some.
func (m *mind) ask(ctx context.Context, q coreapi.MemoryQuery) (a coreapi.MemoryAnswer, err error) {
	q.Agent, q.Caller = mindful, "bench"
	body, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	reply, err := m.caller.Request(ctx, subject.Service(coreapi.AdminName, coreapi.VerbMemory), coreapi.AdminName,
		body)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(reply, &a)
}

// fill stores memories, and waits until all have vectors.
func (m *mind) fill(ctx context.Context, index *sqlite.Store) error {
	for range ownMemories {
		if _, err := m.ask(ctx, coreapi.MemoryQuery{Op: coreapi.MemoryStore, Text: m.text()}); err != nil {
			return err
		}
	}
	for {
		left, err := index.Unembedded(ctx, benchEmbeds, 0, 1)
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settlingTime):
		}
	}
}

// text returns a new sentence. Its words are used as unequally as those of a language.
func (m *mind) text() string {
	often := rand.NewZipf(m.chance, 1.1, 4, 2000)
	words := make([]string, memoryWords)
	for i := range words {
		words[i] = fmt.Sprintf("word%d", often.Uint64())
	}
	return strings.Join(words, " ")
}

// compare runs n turns of each agent in turn, after a warm-up, and returns their medians. Who
// speaks first alternates.
func (m *mind) compare(ctx context.Context, n int) (ours, raw time.Duration, err error) {
	agents := []*talker{m.with, m.plain}
	times := map[*talker][]time.Duration{}
	warm := n/10 + 3
	var texts []string
	for i := range n + warm {
		if len(texts) == 0 {
			if texts, err = m.known(ctx); err != nil {
				return 0, 0, err
			}
		}
		for _, agent := range []*talker{agents[i%2], agents[1-i%2]} {
			took, err := timed(ctx, func(ctx context.Context) error { return agent.say(ctx, texts[0]) })
			if err != nil {
				return 0, 0, err
			}
			if i >= warm {
				times[agent] = append(times[agent], took)
			}
		}
		texts = texts[1:]
	}
	return median(times[m.with]), median(times[m.plain]), nil
}

// known returns texts of which the core has the vectors.
func (m *mind) known(ctx context.Context) (texts []string, err error) {
	for range knownTexts {
		text := m.text()
		if err := m.find(ctx, text); err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// find searches the memories. From then on, the core has the vector of the text.
func (m *mind) find(ctx context.Context, text string) error {
	found, err := m.ask(ctx, coreapi.MemoryQuery{Op: coreapi.MemorySearch, Text: text, Limit: 1})
	if err == nil && (len(found.Hits) == 0 || found.Trouble != "") {
		err = fmt.Errorf("found %d memories: %s", len(found.Hits), found.Trouble)
	}
	return err
}
