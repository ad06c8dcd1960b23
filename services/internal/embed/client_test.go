package embed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/embed"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/test/embedtest"
	"skandha.dev/services/test/natstest"
)

// service answers as the provider service does, with the model that the test sets.
type service struct {
	model embedtest.Model
	bus   *natsserver.Server

	mu       sync.Mutex
	name     string // empty: none is configured
	fail     func([]string) error
	spoil    func(*providerapi.EmbedAnswer)
	batches  [][]string
	statuses int
}

func start(t *testing.T) (*service, *embed.Client) {
	t.Helper()
	srv := natstest.Start(t)
	s := &service{name: "toy/a", bus: srv}
	there, here := natstest.Connect(t, srv), natstest.Connect(t, srv)
	for verb, f := range map[string]func(*bus.Request) (any, error){
		providerapi.VerbEmbed: s.answer, providerapi.VerbStatus: s.status,
	} {
		r, err := there.Respond(subject.Service(providerapi.EmbedderName, verb), providerapi.EmbedderName,
			providerapi.EmbedderName, func(q *bus.Request) { coreapi.Answer(q, f) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Stop)
	}
	if err := there.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	caller, err := here.NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	return s, embed.NewClient(caller)
}

func (s *service) status(*bus.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.statuses++; s.name == "" {
		return nil, bus.Errorf(bus.CodeNotFound, "no embedder is configured")
	}
	return providerapi.Embedder{Model: s.name, Breaker: providerapi.Breaker{State: providerapi.Closed}}, nil
}

func (s *service) answer(q *bus.Request) (any, error) {
	var r providerapi.EmbedRequest
	if err := json.Unmarshal(q.Data, &r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.batches = append(s.batches, r.Texts)
	fail, spoil, name := s.fail, s.spoil, s.name
	s.mu.Unlock()
	if fail != nil {
		if err := fail(r.Texts); err != nil {
			return nil, err
		}
	}
	a := providerapi.EmbedAnswer{Model: name}
	for _, v := range s.model.Embed(r.Texts) {
		a.Dimension, a.Vectors = len(v), append(a.Vectors, embed.Encode(v))
	}
	if spoil != nil {
		spoil(&a)
	}
	return a, nil
}

func (s *service) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *service) sent() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.batches)
}

func must(t *testing.T, c *embed.Client, texts ...string) embed.Vectors {
	t.Helper()
	v, err := c.Embed(natstest.Context(t), texts)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestATextIsSentOnce(t *testing.T) {
	s, c := start(t)
	s.model.Fixed = map[string][]float32{"a": {3, 4}, "b": {0, 2}}
	for range 2 {
		if v := must(t, c, "a", "b", "a"); v.Model != "toy/a" || fmt.Sprint(v.Values) != "[[0.6 0.8] [0 1] [0.6 0.8]]" {
			t.Errorf("the vectors are %+v", v)
		} else {
			v.Values[0][0] = 7 // the caller's own
		}
	}
	if got := s.sent(); !slices.EqualFunc(got, [][]string{{"a", "b"}}, slices.Equal) || s.statuses != 1 {
		t.Errorf("sent are %v, and %d requests for the model", got, s.statuses)
	}
}

func TestManyTextsAreSeveralRequests(t *testing.T) {
	s, c := start(t)
	texts := make([]string, 2*providerapi.MaxTexts+5)
	for i := range texts {
		texts[i] = fmt.Sprintf("text number %d", i)
	}
	v := must(t, c, texts...)
	for i := range texts {
		if one := must(t, c, texts[i]); !slices.Equal(one.Values[0], v.Values[i]) {
			t.Fatalf("the vector of text %d is another one alone", i)
		}
	}
	if got := s.sent(); len(got) != 3 || len(got[2]) != 5 {
		t.Errorf("%d requests", len(got))
	}
}

// While as many requests as may be are in progress, what is asked for meanwhile becomes one.
func TestConcurrentCallersShareRequests(t *testing.T) {
	s, c := start(t)
	gate := make(chan struct{})
	s.set(func() { s.fail = func([]string) error { <-gate; return nil } })
	ask := func(text string) {
		if _, err := c.Embed(natstest.Context(t), []string{text, "in every one"}); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Model(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() { ask(fmt.Sprintf("first %d", i)) })
	}
	natstest.Eventually(t, "four requests", func() bool { return len(s.sent()) == 4 })
	for i := range 20 {
		all.Go(func() { ask(fmt.Sprintf("then %d", i)) })
	}
	natstest.Eventually(t, "all texts wait", func() bool { return embed.Waiting(c) == 21 })
	close(gate)
	all.Wait()
	if got := s.sent(); len(got) != 5 || len(got[4]) != 21 {
		t.Errorf("%d requests, the last with %d texts", len(got), len(got[len(got)-1]))
	}
}

func TestACallerThatGivesUpLeavesNothing(t *testing.T) {
	s, c := start(t)
	gate := make(chan struct{})
	s.set(func() { s.fail = func([]string) error { <-gate; return nil } })
	ctx, cancel := context.WithCancel(natstest.Context(t))
	if _, err := c.Model(ctx); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			if _, err := c.Embed(ctx, []string{fmt.Sprint("text ", i)}); !errors.Is(err, context.Canceled) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	natstest.Eventually(t, "two texts wait", func() bool { return embed.Waiting(c) == 2 && len(s.sent()) == 4 })
	cancel()
	all.Wait()
	if n := embed.Waiting(c); n != 0 {
		t.Errorf("%d texts still wait", n)
	}
	close(gate)
	must(t, c, "another")
}

func TestWithoutAnEmbedder(t *testing.T) {
	s, c := start(t)
	s.set(func() { s.name = "" })
	for range 2 {
		if _, err := c.Embed(natstest.Context(t), []string{"a"}); !errors.Is(err, embed.ErrNone) {
			t.Errorf("the error is %v", err)
		}
	}
	if s.statuses != 1 || len(s.sent()) != 0 {
		t.Errorf("%d requests for the model, sent are %v", s.statuses, s.sent())
	}
}

func TestWithoutAProviderProcess(t *testing.T) {
	caller, err := natstest.Connect(t, natstest.Start(t)).NewCaller()
	if err != nil {
		t.Fatal(err)
	}
	_, err = embed.NewClient(caller).Embed(natstest.Context(t), []string{"a"})
	if !errors.Is(err, bus.ErrUnavailable) || errors.Is(err, embed.ErrNone) {
		t.Errorf("the error is %v", err)
	}
}

func TestFailuresReachTheCaller(t *testing.T) {
	s, c := start(t)
	s.set(func() { s.fail = func([]string) error { return bus.Errorf(bus.CodeOverloaded, "rate_limited") } })
	if _, err := c.Embed(natstest.Context(t), []string{"a"}); !errors.Is(err, bus.ErrOverloaded) {
		t.Errorf("the error is %v", err)
	}
	s.set(func() { s.fail = nil })
	must(t, c, "a") // it was not remembered
}

// An embedder whose API is away is still configured, whatever another process says.
func TestAnOutageIsNotTheLackOfAnEmbedder(t *testing.T) {
	s, c := start(t)
	r, err := natstest.Connect(t, s.bus).Respond(subject.Service(providerapi.EmbedderName, providerapi.VerbAbsent),
		providerapi.EmbedderName, providerapi.EmbedderName, func(q *bus.Request) {
			_ = q.ReplyError(bus.Errorf(bus.CodeNotFound, "this process has none"))
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	must(t, c, "before")
	s.set(func() { s.fail = func([]string) error { return bus.Errorf(bus.CodeUnavailable, "the API is away") } })
	_, err = c.Embed(natstest.Context(t), []string{"during"})
	if errors.Is(err, embed.ErrNone) || !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("error is %v", err)
	}
	if m, err := c.Model(natstest.Context(t)); err != nil || m != "toy/a" {
		t.Errorf("the model is %q, %v", m, err)
	}
}

func TestTheDeadlineIsTheCallers(t *testing.T) {
	s, c := start(t)
	must(t, c, "warm")
	gate := make(chan struct{})
	defer close(gate)
	s.set(func() { s.fail = func([]string) error { <-gate; return nil } })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Embed(ctx, []string{"a"})
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, bus.ErrTimeout) {
		t.Errorf("the error is %v", err)
	}
}

func TestATextThatIsTooLongForTheModelHarmsNoOther(t *testing.T) {
	s, c := start(t)
	must(t, c, "warm")
	gate := make(chan struct{})
	s.set(func() {
		s.fail = func(texts []string) error {
			<-gate
			if slices.Contains(texts, "long") {
				return bus.Errorf(bus.CodeTooLarge, "too_long")
			}
			return nil
		}
	})
	var all sync.WaitGroup
	for i := range 4 { // all slots
		all.Go(func() {
			if _, err := c.Embed(natstest.Context(t), []string{fmt.Sprint("slot ", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	natstest.Eventually(t, "four requests", func() bool { return len(s.sent()) == 5 })
	for _, text := range []string{"a", "b", "long", "c"} {
		all.Go(func() {
			_, err := c.Embed(natstest.Context(t), []string{text})
			if (err != nil) != (text == "long") {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
	natstest.Eventually(t, "all texts wait", func() bool { return embed.Waiting(c) == 4 })
	close(gate)
	all.Wait()
}

func TestAnotherModelIsNotMixedWithTheFirst(t *testing.T) {
	s, c := start(t)
	first := must(t, c, "a")
	s.set(func() { s.name = "toy/b" })
	if v := must(t, c, "a"); v.Model != "toy/a" { // nothing is sent
		t.Errorf("the model is %s", v.Model)
	}
	s.model.Dimension = 3
	v := must(t, c, "a", "b")
	if v.Model != "toy/b" || len(v.Values[0]) != 3 || len(v.Values[1]) != 3 || len(first.Values[0]) == 3 {
		t.Errorf("the vectors are %+v", v)
	}
	if model, err := c.Model(natstest.Context(t)); err != nil || model != "toy/b" || s.statuses != 1 {
		t.Errorf("the model is %s, %v, after %d requests", model, err, s.statuses)
	}
}

func TestAnswersThatCannotBeUsed(t *testing.T) {
	for says, spoil := range map[string]func(*providerapi.EmbedAnswer){
		"1 vectors for 2 texts": func(a *providerapi.EmbedAnswer) { a.Vectors = a.Vectors[1:] },
		"of dimension 7":        func(a *providerapi.EmbedAnswer) { a.Dimension = 7 },
		"the length 0":          func(a *providerapi.EmbedAnswer) { clear(a.Vectors[1]) },
		"not finite":            func(a *providerapi.EmbedAnswer) { copy(a.Vectors[1], []byte{0, 0, 192, 127}) },
		"vectors for 2 texts":   func(a *providerapi.EmbedAnswer) { a.Model = "" },
		"was 128 and is 1: give ": func(a *providerapi.EmbedAnswer) {
			a.Dimension, a.Vectors = 1, [][]byte{{0, 0, 128, 63}, {0, 0, 128, 63}}
		},
	} {
		s, c := start(t)
		must(t, c, "first")
		s.set(func() { s.spoil = spoil })
		if _, err := c.Embed(natstest.Context(t), []string{"a", "b"}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error is %v, want %q", err, says)
		}
	}
}

func TestLongAndOddTexts(t *testing.T) {
	s, c := start(t)
	long := strings.Repeat("漢", 5000)
	v := must(t, c, long, long+"字", "\xff")
	if !slices.Equal(v.Values[0], v.Values[1]) {
		t.Error("what comes after 8 KiB counts")
	}
	for _, text := range s.sent()[0] {
		if len(text) > providerapi.MaxTextBytes {
			t.Errorf("a text of %d bytes was sent", len(text))
		}
	}
	if _, err := c.Embed(natstest.Context(t), []string{"a", " \n"}); err == nil || !strings.Contains(err.Error(), "text 2 of 2 is empty") {
		t.Errorf("the error is %v", err)
	}
	if v := must(t, c); v.Model != "toy/a" || len(v.Values) != 0 {
		t.Errorf("the vectors of no texts are %+v", v)
	}
}
