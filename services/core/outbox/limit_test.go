package outbox

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

// answers stores an input and its answer in the log, and projects the commit.
func (p *paced) answers(t *testing.T, b *journal.Journal, ref subject.Ref, text string) coreapi.OutboxMessage {
	t.Helper()
	ctx := natstest.Context(t)
	marshal := func(v any) []byte {
		body, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	input, err := b.PublishCause(ctx, ref, subject.Input, "phone", "", marshal(event.Input{Text: "hi", ReplyTo: "ann"}))
	if err != nil {
		t.Fatal(err)
	}
	prev, err := b.LastCommitSeq(ctx, ref)
	if err != nil && !errors.Is(err, bus.ErrNotFound) {
		t.Fatal(err)
	}
	data := marshal(event.Recorded{Sequence: input, Answer: text})
	body, err := event.Commit{
		Ref: ref, Header: event.Header{CommitID: nonce(), Prev: prev, Cursor: input, Now: time.Now()},
		Events: []event.Event{{
			SpecVersion: event.SpecVersion, ID: nonce(), Source: event.Source, Type: event.TypeRecorded, Time: time.Now(),
			Agent: ref.Agent, Session: ref.Session, Data: data,
		}},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	seq, err := b.AppendCommit(ctx, ref, body, prev)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.project(ctx, ref, seq); err != nil {
		t.Fatal(err)
	}
	return p.stored(t, newID("phone", "ann", seq, 0))
}

// stored lets the outbox see what the bucket has, and returns it.
func (p *paced) stored(t *testing.T, id string) coreapi.OutboxMessage {
	t.Helper()
	e, err := p.bucket.Get(natstest.Context(t), id)
	if err != nil {
		t.Fatal(err)
	}
	p.take(journal.Change{Entries: []journal.Entry{e}})
	page, err := p.Query(natstest.Context(t), coreapi.OutboxQuery{ID: id})
	if err != nil || len(page.Messages) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	return page.Messages[0]
}

// Messages beyond the limit of a listener are dead at once and have no text; the log has it.
func TestWhatWaitsForAListenerIsLimited(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	p, ref := newPaced(b), subject.Ref{Agent: "main", Session: "long"}
	p.limit = 2 << 20
	text := strings.Repeat("a", maxText-1) + "."
	kept := int(p.limit / maxText) // an entry counts more than its text; the one that goes over the limit is kept
	for i := range kept {
		if m := p.answers(t, b, ref, text); m.State != coreapi.OutboxWaiting || m.Text != text {
			t.Fatalf("message %d is %s, with %d bytes: %s", i, m.State, len(m.Text), m.Error)
		}
	}
	m := p.answers(t, b, ref, text)
	if m.State != coreapi.OutboxDead || m.Text != "" || !strings.Contains(m.Error, "more than 2 MiB") || !strings.Contains(m.Error, "main/long") {
		t.Fatalf("the message beyond the limit is %s, with %d bytes: %s", m.State, len(m.Text), m.Error)
	}
	if all := p.Absent(); len(all) != 1 || !all[0].Full || all[0].Messages != kept {
		t.Errorf("the trouble is %+v", all)
	}
	if _, err := p.Query(natstest.Context(t), coreapi.OutboxQuery{Action: coreapi.OutboxResend, ID: m.ID}); err != nil {
		t.Fatal(err)
	}
	if again := p.stored(t, m.ID); again.State != coreapi.OutboxWaiting || again.Text != text {
		t.Errorf("it is sent again as %s, with %d bytes", again.State, len(again.Text))
	}
}

// An id is a key of the bucket, and never a pattern of keys.
func TestAnIDOfAMessageIsNotAPattern(t *testing.T) {
	b := natstest.Connect(t, natstest.Start(t))
	p := newPaced(b)
	p.answers(t, b, subject.Ref{Agent: "main", Session: "one"}, "hello")
	for _, id := range []string{"*", ">", "*.*.*", "phone.>", "phone.*.00000000000000000002-000", "a b", "lease", "nope", "\n"} {
		for _, action := range []coreapi.OutboxAction{"", coreapi.OutboxResend, coreapi.OutboxDrop} {
			_, err := p.Query(natstest.Context(t), coreapi.OutboxQuery{ID: id, Action: action})
			if !errors.Is(err, bus.ErrInvalidArgument) || !strings.Contains(err.Error(), "want the whole id of a message") {
				t.Errorf("%s %q: %v", action, id, err)
			}
		}
	}
	unknown := newID("phone", "bob", 1, 0)
	if _, err := p.Query(natstest.Context(t), coreapi.OutboxQuery{ID: unknown, Action: coreapi.OutboxDrop}); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("an unknown id: %v", err)
	}
}
