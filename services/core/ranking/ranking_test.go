package ranking_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner/match"
	"skandha.dev/services/core/ranking"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/store"
)

// fake is a test embedder: texts that name one of its subjects have the same vector. So have all texts with Han
// characters.
type fake struct {
	mu    sync.Mutex
	model string
	err   error
	texts int
}

func (f *fake) Embed(_ context.Context, texts []string) (embed.Vectors, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return embed.Vectors{}, f.err
	}
	f.texts += len(texts)
	out := embed.Vectors{Model: f.model}
	for _, text := range texts {
		v := []float32{0, 0, 0}
		for i, names := range [][]string{{"email", "Post"}, {"weather", "Wetter"}, {"note"}} {
			for _, n := range names {
				if strings.Contains(text, n) {
					v[i] = 1
				}
			}
		}
		if strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) }) {
			v = []float32{1, 0, 0} // it cannot read them
		}
		out.Values = append(out.Values, v)
	}
	return out, nil
}

func (f *fake) set(model string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.model, f.err = model, err
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.texts
}

func specs() []tool.Spec {
	var out []tool.Spec
	for _, s := range []tool.Spec{
		{Name: "mail:send", Description: "Sends an email."},
		{Name: "weather:now", Description: "Returns the weather."},
		{Name: "notes:add", Description: "Writes a note."},
	} {
		out = append(out, s.Sealed())
	}
	return out
}

// run runs a Ranker in a bubble with its own time.
func run(t *testing.T, f *fake, check func(*ranking.Ranker)) {
	t.Helper()
	tools := specs()
	runWith(t, ranking.Config{
		Tools: func() []tool.Spec { return tools }, Embedder: f, Log: slog.New(slog.DiscardHandler),
	}, check)
}

func runWith(t *testing.T, cfg ranking.Config, check func(*ranking.Ranker)) {
	t.Helper()
	cfg.Stats = func(context.Context) ([]store.ToolStat, error) {
		return []store.ToolStat{{Tool: "notes:add", Used: 18, Succeeded: 18}}, nil
	}
	synctest.Test(t, func(t *testing.T) {
		r, err := ranking.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		synctest.Wait()
		check(r)
	})
}

func await(r *ranking.Ranker, text string) { r.Await(text, embed.NewPatience(time.Second)) }

func best(r *ranking.Ranker, text string) match.Candidate {
	return r.Rank(match.Request{Text: text, Limit: 1})[0]
}

func TestAnExpectedTextIsMatchedByMeaning(t *testing.T) {
	f := &fake{model: "m"}
	run(t, f, func(r *ranking.Ranker) {
		if c := best(r, "Wie wird das Wetter?"); c.Fit != 0 {
			t.Errorf("before: %+v", c)
		}
		await(r, "Wie wird das Wetter?")
		synctest.Wait()
		if c := best(r, "Wie wird das Wetter?"); c.Tool.Name != "weather:now" || c.Method != match.Semantic {
			t.Errorf("got %s, %s", c.Tool.Name, c.Why)
		}
		await(r, "Wie wird das Wetter?")
		time.Sleep(time.Minute)
		if n := f.count(); n != 4 {
			t.Errorf("%d texts were embedded, want 3 tools and 1 request", n)
		}
	})
}

// The vectors of an embedder that cannot read a script are not used for texts in it.
func TestAScriptThatTheEmbedderCannotRead(t *testing.T) {
	f := &fake{model: "m"}
	run(t, f, func(r *ranking.Ranker) {
		for _, text := range []string{"天氣如何", "把重點記下來"} {
			await(r, text)
			if c := best(r, text); c.Method != match.Lexical {
				t.Errorf("%s: got %s, %s", text, c.Tool.Name, c.Why)
			}
		}
		if n := f.count(); n != 3+2+1 {
			t.Errorf("%d texts were embedded, want 3 tools, 2 requests and 1 for comparison", n)
		}
		if await(r, "Post"); best(r, "Post").Method != match.Semantic {
			t.Error("a text that the embedder can read is not matched by meaning")
		}
	})
}

func TestStatisticsCount(t *testing.T) {
	run(t, &fake{model: "m"}, func(r *ranking.Ranker) {
		if c := best(r, "note"); c.Success != 0.95 {
			t.Errorf("got %+v", c)
		}
	})
}

// While the embedder fails, tools are matched by words; afterwards by meaning.
func TestTheEmbedderFails(t *testing.T) {
	f := &fake{model: "m", err: errors.New("down")}
	run(t, f, func(r *ranking.Ranker) {
		await(r, "email")
		time.Sleep(time.Minute)
		if c := best(r, "email"); c.Tool.Name != "mail:send" || c.Method != match.Lexical {
			t.Errorf("got %+v", c)
		}
		f.set("m", nil)
		time.Sleep(time.Minute)
		await(r, "email")
		synctest.Wait()
		if c := best(r, "email"); c.Method != match.Hybrid {
			t.Errorf("got %+v", c)
		}
	})
}

// An embedder that fails is a warning only if there were embeddings before.
func TestTheLogWarnsOfLostEmbeddings(t *testing.T) {
	var log bytes.Buffer
	f := &fake{model: "m", err: errors.New("not started")}
	var more atomic.Bool
	tools := func() []tool.Spec {
		if more.Load() {
			return specs()
		}
		return specs()[1:]
	}
	cfg := ranking.Config{Tools: tools, Embedder: f, Log: slog.New(slog.NewTextHandler(&log, nil))}
	runWith(t, cfg, func(*ranking.Ranker) {
		f.set("m", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := log.String(); strings.Contains(got, "WARN") || !strings.Contains(got, "no embeddings yet") {
			t.Errorf("while there were none: %s", got)
		}
		f.set("m", errors.New("down"))
		more.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "WARN") != 1 {
			t.Errorf("after there were some: %s", got)
		}
	})
}

// Vectors of another model are not compared with the old ones.
func TestTheModelChanges(t *testing.T) {
	f := &fake{model: "old"}
	run(t, f, func(r *ranking.Ranker) {
		await(r, "Post")
		synctest.Wait()
		if c := best(r, "Post"); c.Method != match.Semantic {
			t.Fatalf("got %+v", c)
		}
		f.set("new", nil)
		await(r, "Wetter")
		time.Sleep(time.Minute)
		await(r, "Post")
		synctest.Wait()
		if c := best(r, "Post"); c.Tool.Name != "mail:send" || c.Method != match.Semantic {
			t.Errorf("after the change: %+v", c)
		}
		if n := f.count(); n != 3+1+1+3+1 {
			t.Errorf("%d texts were embedded", n)
		}
	})
}
