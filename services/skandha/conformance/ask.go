package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
)

// answer is the result of a question to the plugin.
type answer struct {
	body []byte
	err  error // an error reply, or why it could not be asked
	none bool  // no responders
	late bool  // it arrived after the deadline, or not at all: then took is how long the suite waited
	came bool
	took time.Duration
}

// ask asks the plugin and waits until the limit, and a bit longer: an author needs
// to know whether the answer was late or missing.
func (s *suite) ask(ctx context.Context, subj string, body []byte, limit time.Duration) answer {
	ch := make(chan bus.Reply, 1)
	hdr := make(nats.Header, 3)
	began := time.Now()
	bus.SetDeadline(hdr, began.Add(limit))
	forget, err := s.caller.SendWhole(ctx, subj, string(s.name()), hdr, body, func(r bus.Reply) {
		select {
		case ch <- r:
		default:
		}
	})
	if err != nil {
		return answer{err: fmt.Errorf("the suite could not ask: %w", err)}
	}
	defer forget()
	t := time.NewTimer(limit + min(max(limit, time.Second), 3*time.Second))
	defer t.Stop()
	select {
	case r := <-ch:
		took := time.Since(began)
		return answer{body: r.Data, err: r.Err, none: r.NoResponders, came: !r.NoResponders, took: took, late: took > limit}
	case <-t.C:
	case <-s.first.gone:
	case <-ctx.Done():
	}
	return answer{late: true, took: time.Since(began)}
}

// answered reports whether a question was answered, and adds a finding if it was not.
func (s *suite) answered(c *check, subj string, a answer, limit time.Duration) bool {
	expected := fmt.Sprintf("an answer to %s within %s", subj, seconds(limit))
	how, over := s.first.ended()
	var wire *bus.Error
	switch {
	case a.none:
		c.fail(expected, "no subscriber on that subject",
			fmt.Sprintf("subscribe to %s in the queue group %s before you register", subj, s.name()))
	case over && !a.came:
		c.fail(expected, "the process ended: "+how,
			"answer with an error instead: a reply with the header Skandha-Error, see schemas/error.json")
	case !a.came && a.err == nil:
		c.fail(expected, "no answer in "+seconds(a.took),
			"publish the answer on the reply subject of the question, "+
				"before the deadline in the body and in the header Skandha-Deadline")
	case errors.As(a.err, &wire):
		c.fail(expected+" that is not an error", fmt.Sprintf("the error %s: %s", wire.Code, wire.Message),
			"the question is valid by the contract's schemas: accept it")
	case a.err != nil:
		c.fail(expected, a.err.Error(), "see schemas/asyncapi.yaml about replies")
	case a.late:
		c.fail(expected, "an answer after "+seconds(a.took),
			"be faster, or declare a longer deadline: deadline_ms of a hook, timeout_ms of a tool")
	default:
		return true
	}
	return false
}

// answers after the deadline are ignored.
func nothing(bus.Reply) {}
