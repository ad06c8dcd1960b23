package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// backendLimit is the time limit for a language model, a storage or a guide.
const (
	modelLimit   = time.Minute
	backendLimit = 5 * time.Second
)

func (s *suite) providerSteps() (out []step) {
	for i, p := range s.manifest.Providers {
		out = append(out, step{
			name: "provider/" + p.Name, what: "gives a valid reply in time",
			run: func(ctx context.Context, c *check) {
				s.generates(ctx, c, p.Name)
				if i == 0 && c.ok() {
					s.generates(ctx, c, "") // no name: the first one
				}
			},
		})
	}
	return out
}

func (s *suite) generates(ctx context.Context, c *check, name string) {
	n := s.id()
	call := provider.Call{
		Plan: fmt.Sprintf("t%d-p1", n), Attempt: fmt.Sprintf("conformance-%d", n), Agent: "main", Session: "conformance",
		Provider: name,
		Deadline: time.Now().Add(modelLimit).UTC(),
		Request: provider.Request{
			System: "You are brief.", Messages: []json.RawMessage{[]byte(`{"role":"user","text":"Say hello."}`)},
		},
	}
	subj := subject.Generate(s.name())
	a := s.ask(ctx, subj, mustJSON(call), modelLimit)
	if !s.answered(c, subj, a, modelLimit) {
		return
	}
	for _, p := range s.contract.problems("provider/answer.json", a.body) {
		c.fail("a reply by schemas/provider/answer.json", quote(a.body)+": "+p,
			`answer {"response": {"is_final": true, "text_content": "…", "usage": {…}}}, or {"error": {…}}, never both`)
	}
	var r provider.Reply
	if !c.ok() || json.Unmarshal(a.body, &r) != nil {
		return
	}
	if r.Error == nil && r.Response == nil { // not wrapped
		r.Response = &provider.Response{}
		if json.Unmarshal(a.body, r.Response) != nil {
			return
		}
	}
	switch {
	case r.Error != nil:
		c.note("the model answers with an error: " + r.Error.Error())
	case r.Response.TextContent == "" && len(r.Response.ToolCalls) == 0:
		c.fail("text or calls", quote(a.body),
			"a model that returned neither is the error garbage, see schemas/provider/error.json")
	case len(r.Response.ToolCalls) > 0:
		c.fail("no calls: no tools were offered", quote(a.body), "call only tools of the request")
	}
}

func (s *suite) guideSteps() (out []step) {
	for _, name := range s.manifest.Guides {
		out = append(out, step{
			name: "guide/" + name, what: "gives a valid guide of the requested name",
			run: func(ctx context.Context, c *check) { s.guides(ctx, c, name) },
		})
	}
	return out
}

func (s *suite) guides(ctx context.Context, c *check, name string) {
	subj := subject.Guide(s.name())
	a := s.ask(ctx, subj, mustJSON(guide.Request{Name: name, Agent: "main"}), backendLimit)
	if !s.answered(c, subj, a, backendLimit) {
		return
	}
	for _, p := range s.contract.problems("guide/answer.json", a.body) {
		c.fail("a guide by schemas/guide/answer.json", quote(a.body)+": "+p, "see the schema")
	}
	if !c.ok() {
		return
	}
	if _, err := guide.Decode(a.body, name); err != nil {
		c.fail(fmt.Sprintf("the guide %q", name), err.Error(), "answer with the guide that the request names")
	}
	a = s.ask(ctx, subj, mustJSON(guide.Request{Name: "no such guide", Agent: "main"}), backendLimit)
	if !errors.Is(a.err, bus.ErrNotFound) {
		c.fail("the error not_found for an unknown guide", orElse(quote(a.body), a),
			`answer with the header Skandha-Error: not_found and the body {"code":"not_found","message":"…","retryable":false}`)
	}
}

func orElse(body string, a answer) string {
	switch {
	case a.err != nil:
		return a.err.Error()
	case !a.came:
		return "no answer in " + seconds(a.took)
	}
	return body
}

// listenerSteps check the inputs that listeners have sent by themselves.
func (s *suite) listenerSteps() (out []step) {
	for _, l := range slices.Concat(s.manifest.Listeners, s.manifest.Sensors) {
		out = append(out, step{
			name: "listener/" + string(l.Name), what: "sends only valid inputs",
			run: func(_ context.Context, c *check) { s.listens(c, l) }, after: true,
		})
	}
	return out
}

func (s *suite) listens(c *check, l plugin.Listener) {
	n := 0
	for _, p := range s.ran {
		for _, e := range p.tap.published(func(string) bool { return true }) {
			cause, err := subject.ParseCause(e.subject)
			if err != nil || cause.Writer != l.Name || cause.Kind != subject.Input {
				continue
			}
			n++
			var in event.Input
			if err := event.DecodeCause(e.body, &in); err != nil {
				c.fail("an input by schemas/events/sense.input.v1.json", quote(e.body)+": "+err.Error(),
					`send at least {"text": "…"}`)
			} else if err := in.Check(); err != nil {
				c.fail("an input by schemas/events/sense.input.v1.json", quote(e.body)+": "+err.Error(), "see the schema")
			}
			if e.reply == "" {
				c.fail("an input that is sent as a request", "one without a reply subject on "+e.subject,
					"wait for the acknowledgement: until it arrives, the input may be lost")
			}
		}
	}
	if n == 0 {
		c.note("it sent nothing while it was watched: only its declaration was checked")
	}
}

func (s *suite) storageSteps() (out []step) {
	if s.manifest.Storage == nil {
		return nil
	}
	if len(s.manifest.Storage.Verbs) > 0 {
		out = append(out, step{
			name: "storage", what: "put, get, search, delete; agents are separate", run: s.stores,
		})
	}
	if s.manifest.Storage.Index {
		out = append(out, step{
			name: "storage/index", what: "write, read, list, pending, rank, wipe; agents are separate", run: s.indexes,
		})
	}
	return out
}

// storedKey is the key of most entries.
const storedKey = "a key/with: anything"

// stores tries all declared verbs.
func (s *suite) stores(ctx context.Context, c *check) {
	st := &storing{suite: s, ctx: ctx, c: c, collection: fmt.Sprintf("conformance-%d-%d", s.id(), time.Now().UnixNano())}
	const key, text = storedKey, "the quick brown fox"
	value := json.RawMessage(`{"fox":["quick",1.5,null],"ü":"ö"}`)
	st.got("nothing was put", "main", nil)
	st.put("main", key, text, json.RawMessage(`"old"`))
	st.put("main", key, text, value) // again: it replaces
	st.put("main", "another", "lazy dogs", json.RawMessage(`"dog"`))
	st.got("it was put", "main", value)
	st.got("it belongs to the agent main", "other", nil)
	st.found("main", "fox", key, value)
	st.found("other", "fox", "", nil)
	st.do("main", plugin.StorageRequest{Verb: plugin.Delete, Key: key})
	st.do("main", plugin.StorageRequest{Verb: plugin.Delete, Key: key}) // again: of a missing entry
	st.got("it was deleted", "main", nil)
	st.found("main", "fox", "another", nil)
	st.do("main", plugin.StorageRequest{Verb: plugin.Delete, Key: "another"})
}

// storing is one round; after a failure it asks nothing more.
type storing struct {
	*suite
	ctx        context.Context //nolint:containedctx // of one round
	c          *check
	collection string
}

func (st *storing) has(v plugin.StorageVerb) bool {
	return slices.Contains(st.manifest.Storage.Verbs, v)
}

func (st *storing) do(agent subject.Agent, r plugin.StorageRequest) (reply plugin.StorageReply, ok bool) {
	if !st.c.ok() || !st.has(r.Verb) {
		return reply, false
	}
	r.Agent, r.Collection = agent, st.collection
	subj := subject.Storage(st.name(), string(r.Verb))
	body := mustJSON(r)
	a := st.ask(st.ctx, subj, body, backendLimit)
	if !st.answered(st.c, subj, a, backendLimit) {
		return reply, false
	}
	for _, p := range st.contract.problems("storage/reply.json", a.body) {
		st.c.fail("a reply by schemas/storage/reply.json",
			fmt.Sprintf("%s, asked with %s: %s", quote(a.body), quote(body), p), "put and delete answer {}")
	}
	return reply, json.Unmarshal(a.body, &reply) == nil && st.c.ok()
}

func (st *storing) put(agent subject.Agent, key, text string, value json.RawMessage) {
	st.do(agent, plugin.StorageRequest{Verb: plugin.Put, Key: key, Text: text, Value: value})
}

// got asks for the key; a nil value means that it should not exist.
func (st *storing) got(when string, agent subject.Agent, value json.RawMessage) {
	if value != nil && !st.has(plugin.Put) {
		return
	}
	r, ok := st.do(agent, plugin.StorageRequest{Verb: plugin.Get, Key: storedKey})
	deleted := when != "it was deleted" || st.has(plugin.Delete)
	switch {
	case !ok || !deleted:
	case value == nil && r.Found:
		st.c.fail(fmt.Sprintf("get of %q for agent %s finds nothing: %s", storedKey, agent, when), "it found "+quote(r.Value),
			"keep agents and collections apart, and answer found: false")
	case value != nil && (!r.Found || !sameJSON(r.Value, value)):
		st.c.fail(fmt.Sprintf("get of %q finds %s", storedKey, value),
			fmt.Sprintf("found %v, value %s", r.Found, quote(r.Value)), "keep the value as it was put, and answer found: true")
	}
}

// found searches. The best hit should be the key with the value; with no value the
// key is the only one that may be among the hits.
func (st *storing) found(agent subject.Agent, query, key string, value json.RawMessage) {
	if !st.has(plugin.Put) || value == nil && key != "" && !st.has(plugin.Delete) {
		return
	}
	r, ok := st.do(agent, plugin.StorageRequest{Verb: plugin.Search, Query: query, Limit: 1})
	if !ok {
		return
	}
	if len(r.Entries) > 1 {
		st.c.fail("at most one hit, as limit is 1", fmt.Sprintf("%d hits", len(r.Entries)), "respect limit")
	}
	switch {
	case value != nil && (len(r.Entries) == 0 || r.Entries[0].Key != key || !sameJSON(r.Entries[0].Value, value)):
		st.c.fail(fmt.Sprintf("search for %q finds %q with its value", query, key), string(mustJSON(r.Entries)),
			"search the text that was put, best first")
	case value == nil && len(r.Entries) > 0 && r.Entries[0].Key != key:
		st.c.fail(fmt.Sprintf("search for %q of agent %s does not find other agents' or deleted entries", query, agent),
			string(mustJSON(r.Entries)), "keep agents apart, and do not find deleted entries")
	}
}
