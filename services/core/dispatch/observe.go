package dispatch

import (
	"context"
	"fmt"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/hook"
)

// maxOpen is how many questions to observers may be without an answer. Further ones fail: an observer that is so slow
// misses what happens.
const maxOpen = 512

func (h *hooked) observes(e *Engine) bool {
	return !h.Judge && !h.Required && e.cfg.Observes(h.Plugin, h.Point)
}

// observe asks an observer, and does not wait for the answer. It counts as any other.
func (e *Engine) observe(ctx context.Context, env hook.Envelope, h *hooked, q bus.Question) {
	one := func(ctx context.Context) {
		r := round{until: q.Deadline, began: time.Now(), questions: []bus.Question{q}, asked: []asked{{0, h}}}
		answers := []hook.Answer{{Plugin: h.Plugin, OnError: h.OnError}}
		e.send(ctx, &r, answers)
		failed := hook.NewFold(env.Point, env.Step, env.Data).Add(answers...)
		e.account(ctx, env, []hooked{*h}, answers, failed)
	}
	select {
	case e.open <- struct{}{}:
		go func() {
			defer func() { <-e.open }()
			one(context.WithoutCancel(ctx))
		}()
	default:
		err := fmt.Errorf("%d questions to observers are without an answer", maxOpen)
		e.account(ctx, env, []hooked{*h}, []hook.Answer{{Plugin: h.Plugin, OnError: h.OnError}}, []hook.Failure{{Plugin: h.Plugin, Err: err}})
	}
}
