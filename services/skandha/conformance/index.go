package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
)

// indexStep is a request to an index, and the records that it returns: agent/key:version.
type indexStep struct {
	what    string
	request plugin.IndexRequest
	want    []string
}

// indexSteps are what an index is asked, in order.
func indexSteps() []indexStep {
	record := func(agent subject.Agent, key, expect, version string) plugin.Record {
		return plugin.Record{Agent: agent, Key: key, Expect: expect, Version: version}
	}
	with := func(r plugin.Record, order, revision, kind, words string) plugin.Record {
		r.Order, r.Revision, r.Kind, r.Words, r.Value = order, revision, kind, words, json.RawMessage(`{"n":[1.5,null]}`)
		return r
	}
	fox := with(record("main", "fox", "", "1"), "1", "1", "fact", "quick fox")
	fox.Model, fox.Vector = "m", []float32{1, 0}
	newer := fox
	newer.Expect, newer.Version = "1", "2"
	write := func(r ...plugin.Record) plugin.IndexRequest {
		return plugin.IndexRequest{Verb: plugin.Write, Records: r}
	}
	read := func(agent subject.Agent, key string) plugin.IndexRequest {
		return plugin.IndexRequest{Verb: plugin.Read, Records: []plugin.Record{{Agent: agent, Key: key}}}
	}
	list := func(limit int, after string, kinds ...string) plugin.IndexRequest {
		return plugin.IndexRequest{Verb: plugin.List, Agent: "main", Limit: limit, After: after, Kinds: kinds}
	}
	rank := func(q plugin.IndexRequest) plugin.IndexRequest {
		q.Verb, q.Agent, q.Limit = plugin.Rank, "main", 9
		return q
	}
	return []indexStep{
		{"new records are stored", write(fox, with(record("main", "dog", "", "1"), "2", "3", "note", "lazi dog"),
			with(record("Main", "fox", "", "1"), "1", "2", "fact", "fox"), record("main", "gone", "", "1")), nil},
		{"a record that exists is not new", write(record("main", "fox", "", "9")), []string{"main/fox:1"}},
		{"a record is replaced in its version", write(newer), nil},
		{"and not in an earlier one", write(record("main", "fox", "1", "9")), []string{"main/fox:2"}},
		{"the new version is stored", read("main", "fox"), []string{"main/fox:2"}},
		{"Main is another agent", read("Main", "fox"), []string{"Main/fox:1"}},
		{"a record without order is read", read("main", "gone"), []string{"main/gone:1"}},
		{"and not listed", list(9, ""), []string{"main/fox:2", "main/dog:1"}},
		{"the limit counts", list(1, ""), []string{"main/fox:2"}},
		{"a list begins after an order", list(9, "1"), []string{"main/dog:1"}},
		{"a list has the kinds of the request", list(9, "", "note"), []string{"main/dog:1"}},
		{
			"all agents' records without a vector of the model, by revision",
			plugin.IndexRequest{Verb: plugin.Pending, Without: "m", Limit: 9},
			[]string{"Main/fox:1", "main/dog:1"},
		},
		{"by words", rank(plugin.IndexRequest{Words: "fox zebra"}), []string{"main/fox:2"}},
		{"by words, without a vector", rank(plugin.IndexRequest{Words: "fox dog", Without: "m"}), []string{"main/dog:1"}},
		{"by vector", rank(plugin.IndexRequest{Model: "m", Vector: []float32{0, 1}}), []string{"main/fox:2"}},
		{"a wipe", plugin.IndexRequest{Verb: plugin.Wipe}, nil},
		{"nothing is left", list(9, ""), nil},
		{"not even without order", read("main", "gone"), nil},
	}
}

// indexes asks everything of an index, until something is wrong.
func (s *suite) indexes(ctx context.Context, c *check) {
	collection := fmt.Sprintf("conformance-%d-%d", s.id(), time.Now().UnixNano())
	for _, step := range indexSteps() {
		step.request.Collection = collection
		subj, body := subject.Storage(s.name(), string(step.request.Verb)), mustJSON(step.request)
		a := s.ask(ctx, subj, body, backendLimit)
		if !s.answered(c, subj, a, backendLimit) {
			return
		}
		for _, p := range s.contract.problems("storage/index_reply.json", a.body) {
			c.fail("a reply by schemas/storage/index_reply.json",
				fmt.Sprintf("%s, asked with %s: %s", quote(a.body), quote(body), p), "see the schema")
		}
		var reply plugin.IndexReply
		if !c.ok() || json.Unmarshal(a.body, &reply) != nil {
			return
		}
		var got []string
		for _, r := range reply.Records {
			got = append(got, fmt.Sprintf("%s/%s:%s", r.Agent, r.Key, r.Version))
		}
		if !slices.Equal(got, step.want) {
			c.fail(fmt.Sprintf("%s: the records %q", step.what, step.want),
				fmt.Sprintf("%q, asked with %s", got, quote(body)), "see schemas/storage/index_request.json")
			return
		}
	}
}
