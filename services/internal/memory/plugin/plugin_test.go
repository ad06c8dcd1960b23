package plugin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/memory"
	sdk "skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	index "skandha.dev/services/internal/memory"
	"skandha.dev/services/internal/memory/plugin"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/plugincalltest"
)

// rig is a store whose plugin answers as the test says.
type rig struct {
	*testing.T
	store *plugin.Store

	mu      sync.Mutex
	asked   []sdk.IndexRequest
	answers map[sdk.IndexVerb]func(sdk.IndexRequest) string // a JSON error, if it begins with a code
}

func manifest(s *sdk.Storage) sdk.Manifest {
	return sdk.Manifest{Name: "p", Version: "1.2.3", Storage: s}
}

func newRig(t *testing.T, m *sdk.Manifest, timeout string) *rig {
	t.Helper()
	s := natstest.Start(t)
	b := natstest.Connect(t, s)
	r := &rig{T: t, answers: map[sdk.IndexVerb]func(sdk.IndexRequest) string{}}
	if m != nil {
		plugincalltest.New(t, b).Register(*m, "one")
	}
	plugincalltest.Answer(t, plugincalltest.Client(t, s), "p", "storage.p.*", r.answer)
	var err error
	if r.store, err = plugin.Open(plugin.Config{
		URL: "plugin://p?timeout=" + timeout, Bus: b, Logger: natstest.Logger(t), Grace: 50 * time.Millisecond,
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() })
	return r
}

// indexed is a rig whose plugin declares an index.
func indexed(t *testing.T) *rig {
	t.Helper()
	m := manifest(&sdk.Storage{Index: true})
	return newRig(t, &m, "1m")
}

func (r *rig) answer(m *nats.Msg) {
	var q sdk.IndexRequest
	if err := json.Unmarshal(m.Data, &q); err != nil {
		r.Error(err)
	}
	r.mu.Lock()
	f := r.answers[q.Verb]
	r.asked = append(r.asked, q)
	r.mu.Unlock()
	text := `{}`
	if f != nil {
		text = f(q)
	}
	reply := &nats.Msg{Data: []byte(text)}
	if code, message, is := strings.Cut(text, ": "); is && !strings.Contains(code, `"`) {
		body, _ := json.Marshal(&bus.Error{Code: bus.Code(code), Message: message})
		reply = &nats.Msg{Data: body, Header: nats.Header{bus.ErrorHeader: {code}}}
	}
	if text != "silence" {
		_ = m.RespondMsg(reply)
	}
}

// on makes the plugin answer a verb.
func (r *rig) on(verb sdk.IndexVerb, f func(sdk.IndexRequest) string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[verb] = f
}

func (r *rig) fails(err, want error, says string) {
	r.Helper()
	if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), says) {
		r.Errorf("error is %v, want %v with %q", err, want, says)
	}
}

func entry(agent subject.Agent, id, text string) index.Entry {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return index.Entry{Revision: 5, Memory: memory.Memory{
		ID: id, Agent: agent, Kind: memory.Fact, Text: text, Source: memory.Source{Origin: memory.FromPerson}, Created: at,
	}}
}

// written returns the record that the store writes for an entry.
func written(t *testing.T, e index.Entry) sdk.Record {
	t.Helper()
	r := indexed(t)
	if err := r.store.Put(t.Context(), []index.Entry{e}); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.asked[len(r.asked)-1]
	return last.Records[len(last.Records)-1]
}

func answerOf(t *testing.T, records ...sdk.Record) string {
	t.Helper()
	b, err := json.Marshal(sdk.IndexReply{Records: records})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPluginsThatCannotServe(t *testing.T) {
	old := manifest(&sdk.Storage{Verbs: []sdk.StorageVerb{sdk.Put, sdk.Get}})
	none := manifest(nil)
	none.Guides = []string{"g"}
	for name, c := range map[string]struct {
		manifest *sdk.Manifest
		says     string
	}{
		"it is not registered":     {nil, "it is not registered; start it"},
		"it declares no index":     {&old, "version 1.2.3 declares no storage.index in its manifest; an index of memories needs the verbs [write read"},
		"it is no storage backend": {&none, "declares no storage.index"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.manifest, "1m")
			r.fails(r.store.Ping(t.Context()), index.ErrUnavailable, c.says)
		})
	}
}

func TestAPluginThatDoesNotAnswer(t *testing.T) {
	m := manifest(&sdk.Storage{Index: true})
	r := newRig(t, &m, "50ms")
	r.on(sdk.Read, func(sdk.IndexRequest) string { return "silence" })
	r.fails(r.store.Ping(t.Context()), index.ErrUnavailable, "no answer to read within 50ms")
}

func TestAnErrorOfThePlugin(t *testing.T) {
	r := indexed(t)
	r.on(sdk.Read, func(sdk.IndexRequest) string { return "failed: the disk is on fire" })
	r.fails(r.store.Ping(t.Context()), index.ErrUnavailable, "the disk is on fire")
	for _, code := range []string{"invalid_argument", "too_large"} {
		r.on(sdk.Write, func(sdk.IndexRequest) string { return code + ": not this one" })
		r.fails(r.store.Put(t.Context(), []index.Entry{entry("main", "1", "tea")}), index.ErrInvalid, "not this one")
	}
}

// No answer panics, and none brings a memory that was not asked for.
func TestWrongAnswers(t *testing.T) {
	tea := written(t, entry("main", "1", "tea"))
	tea.Score = 1
	change := func(f func(*sdk.Record)) string {
		r := tea
		f(&r)
		return answerOf(t, r)
	}
	other := written(t, entry("other", "1", "tea"))
	other.Score = 1
	note := entry("main", "2", "tea")
	note.Kind = memory.Note
	notes := written(t, note)
	notes.Score = 1
	all := map[string]struct{ answer, says string }{
		"no JSON":             {"<html>", "does not follow schemas/storage/index_reply.json"},
		"nothing":             {"", "does not follow"},
		"half":                {`{"records":[{"agent":"main"`, "does not follow"},
		"another shape":       {`{"records":{"agent":"main"}}`, "does not follow"},
		"a huge score":        {`{"records":[{"agent":"main","key":"k","version":"1","score":1e999}]}`, "does not follow"},
		"no version":          {change(func(r *sdk.Record) { r.Version = "" }), `the version "", which it never got`},
		"another version":     {change(func(r *sdk.Record) { r.Version = "zz.a.b.c" }), `the version "zz.a.b.c", which it never got`},
		"a removal":           {change(func(r *sdk.Record) { r.Version = "0000000000000005.-.-.1" }), "a record without order"},
		"no value":            {change(func(r *sdk.Record) { r.Value = nil }), "is not a memory"},
		"another value":       {change(func(r *sdk.Record) { r.Value = json.RawMessage(`[1]`) }), "is not a memory"},
		"an empty memory":     {change(func(r *sdk.Record) { r.Value = json.RawMessage(`{}`) }), "is not a memory"},
		"another key":         {change(func(r *sdk.Record) { r.Key = notes.Key }), "has the value of another one"},
		"another text":        {change(func(r *sdk.Record) { r.Value = json.RawMessage(strings.Replace(string(r.Value), "tea", "rum", 1)) }), "the value of another one"},
		"another agent":       {answerOf(t, other), `a record of agent "other", asked about agent main`},
		"a forged agent":      {change(func(r *sdk.Record) { r.Value = other.Value }), "the value of another one"},
		"another kind":        {answerOf(t, notes), "a record of the kind note, asked for [fact]"},
		"the same twice":      {answerOf(t, tea, tea), "twice"},
		"more than the limit": {answerOf(t, tea, notes, other, tea), "asked for at most 3"},
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			r := indexed(t)
			for _, v := range []sdk.IndexVerb{sdk.List, sdk.Rank} {
				r.on(v, func(sdk.IndexRequest) string { return c.answer })
			}
			kinds := []memory.Kind{memory.Fact}
			_, _, err := r.store.List(t.Context(), "main", kinds, 2, "") // and one more, to see whether there is a next page
			r.fails(err, index.ErrUnavailable, c.says)
			_, err = r.store.Search(t.Context(), index.Query{Agent: "main", Text: "tea", Kinds: kinds, Limit: 3})
			r.fails(err, index.ErrUnavailable, c.says)
		})
	}
}

func TestWrongAnswersToRead(t *testing.T) {
	with := entry("main", "1", "tea")
	with.Model, with.Vector = "m", []float32{1, 0}
	tea := written(t, with)
	change := func(f func(*sdk.Record)) string {
		r := tea
		f(&r)
		return answerOf(t, r)
	}
	for name, c := range map[string]struct{ answer, says string }{
		"another record": {change(func(r *sdk.Record) { r.Key = "k" }), "it returned other records"},
		"two records":    {answerOf(t, tea, tea), "it returned other records"},
		"no vector":      {change(func(r *sdk.Record) { r.Vector = nil }), "lacks its vector"},
		"another model":  {change(func(r *sdk.Record) { r.Model = "n" }), "lacks its vector"},
		"a damaged one":  {change(func(r *sdk.Record) { r.Vector = []float32{0, 0} }), "the vector of a record is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			r := indexed(t)
			r.on(sdk.Read, func(sdk.IndexRequest) string { return c.answer })
			_, err := r.store.Get(t.Context(), with.Key())
			r.fails(err, index.ErrUnavailable, c.says)
		})
	}
}

func TestWrongAnswersToWrite(t *testing.T) {
	conflict := func(change func(*sdk.Record)) func(sdk.IndexRequest) string {
		return func(q sdk.IndexRequest) string {
			r := sdk.Record{Agent: q.Records[0].Agent, Key: q.Records[0].Key}
			change(&r)
			return answerOf(t, r)
		}
	}
	for name, c := range map[string]struct {
		answer func(sdk.IndexRequest) string
		says   string
	}{
		"a conflict with nothing":        {conflict(func(*sdk.Record) {}), "which has the expected version"},
		"a conflict of another record":   {conflict(func(r *sdk.Record) { r.Key, r.Version = "k", "1" }), "which it was not sent"},
		"a version that was not written": {conflict(func(r *sdk.Record) { r.Version = "1" }), "which it never got"},
	} {
		t.Run(name, func(t *testing.T) {
			r := indexed(t)
			r.on(sdk.Write, c.answer)
			err := r.store.Put(t.Context(), []index.Entry{entry("main", "1", "tea")})
			r.fails(err, index.ErrUnavailable, c.says)
		})
	}
}

// A plugin that always refuses, each time with an older version, does not hold core up forever.
func TestEndlessConflicts(t *testing.T) {
	r := indexed(t)
	n := 0
	r.on(sdk.Write, func(q sdk.IndexRequest) string {
		if q.Records[0].Key == "position" {
			return `{}`
		}
		n++
		return answerOf(t, sdk.Record{
			Agent: "main", Key: q.Records[0].Key, Version: fmt.Sprintf("0000000000000001.-.-.%d", n),
		})
	})
	err := r.store.Put(t.Context(), []index.Entry{entry("main", "1", "tea")})
	r.fails(err, index.ErrUnavailable, "because of conflicts")
}

// A plugin whose answers do not fit into a message is asked for fewer records.
func TestAnswersThatAreTooLarge(t *testing.T) {
	var records []sdk.Record
	for n := 9; n > 0; n-- {
		e := entry("main", fmt.Sprint(n), "tea")
		e.Created = e.Created.Add(time.Duration(n) * time.Second)
		records = append(records, written(t, e))
	}
	r := indexed(t)
	r.on(sdk.List, func(q sdk.IndexRequest) string {
		if q.Limit > 2 {
			return "too_large: the answer does not fit"
		}
		var page []sdk.Record
		for _, x := range records {
			if x.Order > q.After && len(page) < q.Limit {
				page = append(page, x)
			}
		}
		return answerOf(t, page...)
	})
	page, next, err := r.store.List(t.Context(), "main", nil, 8, "")
	if err != nil || len(page) != 8 || page[0].ID != "9" || next == "" {
		t.Fatalf("%d memories, next %q, %v", len(page), next, err)
	}
}

// A large batch is split so that each request fits into a message of any server.
func TestLargeBatchesAreSplit(t *testing.T) {
	r := indexed(t)
	var entries []index.Entry
	for n := range 100 {
		e := entry("main", fmt.Sprint(n), strings.Repeat("字", memory.MaxText/3))
		e.Model, e.Vector = "m", make([]float32, index.MaxDimension)
		e.Vector[n] = 1
		entries = append(entries, e)
	}
	if err := r.store.Put(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, q := range r.asked {
		body, err := json.Marshal(q)
		if err != nil || len(body) > 1<<20 {
			t.Errorf("a request of %d bytes, %v", len(body), err)
		}
		n += len(q.Records)
	}
	if want := len(entries) + 2; n != want { // and the model and the position
		t.Errorf("%d records were written, want %d", n, want)
	}
}

// A plugin that loses its records while it is filled gets no position, so that it is filled
// again.
func TestALossIsNoticed(t *testing.T) {
	r := indexed(t)
	ctx := t.Context()
	var position sdk.Record
	r.on(sdk.Write, func(q sdk.IndexRequest) string {
		if q.Records[0].Key == "position" {
			position = q.Records[0]
		}
		return `{}`
	})
	r.on(sdk.Read, func(sdk.IndexRequest) string {
		if position.Key == "" {
			return `{}`
		}
		return answerOf(t, position)
	})
	if at, err := r.store.Position(ctx); at != 0 || err != nil {
		t.Fatal(at, err)
	}
	if err := r.store.Put(ctx, []index.Entry{entry("main", "1", "tea")}); err != nil {
		t.Fatal(err)
	}
	position = sdk.Record{} // everything is lost
	r.fails(r.store.SetPosition(ctx, 7), index.ErrUnavailable, "it has lost its records")
	if at, err := r.store.Position(ctx); at != 0 || err != nil {
		t.Fatal(at, err)
	}
	if err := errors.Join(r.store.Put(ctx, []index.Entry{entry("main", "1", "tea")}), r.store.SetPosition(ctx, 7)); err != nil {
		t.Fatal(err)
	}
	if at, err := r.store.Position(ctx); at != 7 || err != nil {
		t.Fatal(at, err)
	}
}
