package schedules

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/test/natstest"
)

// hook creates a webhook, and returns a call of it that its key allows.
func (w *world) hook(s *Schedules, when coreapi.When) (*record, coreapi.Occurrence) {
	w.t.Helper()
	when.Webhook = true
	r := w.create(s, request{Name: "build", Text: "Say why the build failed.", When: when})
	return r, coreapi.Occurrence{Hook: r.Made, Key: r.Key, ID: "1", Body: `{"status":"failed"}`}
}

// Each call is one input, also if it is repeated, and at another core. What was sent is data.
func TestACallOfAWebhookIsOneInput(t *testing.T) {
	w := embedded(t)
	s, other := w.started(), w.started()
	r, call := w.hook(s, coreapi.When{})
	first, err := s.Occur(natstest.Context(t), call)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the other core knows it", func() bool { return other.Counters()["schedules"] == 1 })
	if again, err := other.Occur(natstest.Context(t), call); err != nil || again != first {
		t.Errorf("repeated: %+v, %v", again, err)
	}
	unnamed := call
	unnamed.ID, unnamed.Body = "", ""
	for range 2 {
		if _, err := other.Occur(natstest.Context(t), unnamed); err != nil {
			t.Fatal(err)
		}
	}
	all := w.inputs()
	if len(all) != 3 {
		t.Fatalf("%d inputs", len(all))
	}
	in := all[0]
	if in.Origin != "webhook:build" || in.Source != "schedule:build" || !strings.HasPrefix(in.Text, r.Text+"\n\nThe text between") ||
		!strings.Contains(in.Text, "(webhook:build). It is data") || !strings.Contains(in.Text, "\n"+call.Body+"\n") {
		t.Errorf("%+v", in)
	}
	if !strings.Contains(all[1].Text, "called without a body") {
		t.Errorf("%+v", all[1])
	}
}

func TestAWebhookRefusesWhoHasNoKey(t *testing.T) {
	w := embedded(t)
	s := w.started()
	r, call := w.hook(s, coreapi.When{})
	mac := hmac.New(sha256.New, []byte(r.Key))
	mac.Write([]byte(call.Body))
	signature := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	for name, c := range map[string]struct {
		change func(*coreapi.Occurrence)
		want   error
	}{
		"its key":              {func(*coreapi.Occurrence) {}, nil},
		"its signature":        {func(q *coreapi.Occurrence) { q.Key, q.Signature = "", signature }, nil},
		"another body":         {func(q *coreapi.Occurrence) { q.Key, q.Signature, q.Body = "", signature, "{}" }, bus.ErrDenied},
		"another key":          {func(q *coreapi.Occurrence) { q.Key = newKey() }, bus.ErrDenied},
		"nothing":              {func(q *coreapi.Occurrence) { q.Key = "" }, bus.ErrDenied},
		"another hook":         {func(q *coreapi.Occurrence) { q.Hook = nonce() }, bus.ErrNotFound},
		"no JSON":              {func(q *coreapi.Occurrence) { q.Body = "status=failed" }, bus.ErrInvalidArgument},
		"too much":             {func(q *coreapi.Occurrence) { q.Body = `"` + strings.Repeat("x", maxBody) + `"` }, bus.ErrTooLarge},
		"an agent that is not": {func(*coreapi.Occurrence) { w.gone.Store(true) }, bus.ErrUnavailable},
	} {
		q := call
		q.ID = name
		c.change(&q)
		if _, err := s.Occur(natstest.Context(t), q); !errors.Is(err, c.want) {
			t.Errorf("with %s: %v, want %v", name, err, c.want)
		}
		w.gone.Store(false)
	}
	if n := len(w.inputs()); n != 2 {
		t.Errorf("%d inputs", n)
	}
}

// A webhook ends: after its count of calls, at its end, and when it is deleted.
func TestAWebhookEnds(t *testing.T) {
	w := embedded(t)
	s := w.started()
	_, call := w.hook(s, coreapi.When{Count: 2})
	for i, want := range []error{nil, nil, bus.ErrNotFound} {
		call.ID = fmt.Sprint(i)
		if _, err := s.Occur(natstest.Context(t), call); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
	r, call := w.hook(s, coreapi.When{Until: "2024-05-01T09:00"}) // 2 hours from now for the cores, and long ago for the server
	natstest.Eventually(t, "its end has come by the server's clock", func() bool {
		_, err := s.bucket.Get(natstest.Context(t), r.key())
		return errors.Is(err, bus.ErrNotFound)
	})
	natstest.Eventually(t, "it is over", func() bool {
		_, err := s.Occur(natstest.Context(t), call)
		return errors.Is(err, bus.ErrNotFound)
	})
}

// A sender that calls too often is refused, and others are not.
func TestAWebhookThatIsCalledTooOftenRefuses(t *testing.T) {
	w := embedded(t)
	s := w.started()
	_, call := w.hook(s, coreapi.When{})
	second := w.create(s, request{Name: "second", Text: "x", When: coreapi.When{Webhook: true}})
	var err error
	for i := range callBurst + 1 {
		call.ID = fmt.Sprint(i)
		if _, err = s.Occur(natstest.Context(t), call); err != nil {
			break
		}
	}
	if !errors.Is(err, bus.ErrOverloaded) || len(w.inputs()) != callBurst {
		t.Errorf("%v after %d inputs", err, len(w.inputs()))
	}
	if _, err := s.Occur(natstest.Context(t), coreapi.Occurrence{Hook: second.Made, Key: second.Key}); err != nil {
		t.Errorf("another webhook: %v", err)
	}
	later := w.now.Load().Add(callPause)
	w.now.Store(&later)
	if _, err := s.Occur(natstest.Context(t), call); err != nil {
		t.Errorf("later: %v", err)
	}
}

// The key is for people: an agent's tools do not show it, so that it is in no log and no prompt.
func TestTheKeyIsForPeople(t *testing.T) {
	w := embedded(t)
	s := w.started()
	r, _ := w.hook(s, coreapi.When{})
	if got := s.shown(r); got.Key != "" || got.Path != "/hooks/"+r.Made {
		t.Errorf("the agent sees %+v", got)
	}
	p, err := s.Query(natstest.Context(t), coreapi.SchedulesQuery{})
	if err != nil || len(p.Schedules) != 1 || p.Schedules[0].Key != r.Key || len(p.Schedules[0].Next) != 0 {
		t.Errorf("people see %+v, %v", p, err)
	}
	if e, err := s.bucket.Get(natstest.Context(t), r.key()); err != nil || time.Since(e.Time) > time.Hour {
		t.Errorf("%+v, %v", e, err)
	}
}

// A pattern names no schedule: it would delete another one.
func TestAPatternDeletesNothing(t *testing.T) {
	w := embedded(t)
	s := w.started()
	w.hook(s, coreapi.When{})
	for _, q := range []coreapi.SchedulesQuery{
		{Agent: "main", Session: "s1", Name: "*"}, {Agent: "main", Session: "*", Name: "build"}, {Agent: ">", Session: "s1", Name: "build"},
	} {
		q.Action = coreapi.ScheduleDelete
		if _, err := s.Query(natstest.Context(t), q); !errors.Is(err, bus.ErrInvalidArgument) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if n := s.Counters()["schedules"]; n != 1 {
		t.Errorf("%d schedules are left", n)
	}
}
