package embed

import (
	"context"
	"errors"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/providerapi"
)

const (
	requests = 4           // at a time
	askWait  = time.Minute // for one of them, at most
)

// found is a text's vector and the model that computed it.
type found struct {
	model  string
	vector []float32
}

// item is a text that waits. The queue's mutex guards it until done is closed.
type item struct {
	text    string
	until   time.Time // the latest deadline of its callers
	callers int
	done    chan struct{}
	found   found
	err     error
}

// queue joins the texts of concurrent callers into requests. While as many as may be are in
// progress, further texts gather.
type queue struct {
	ask func(ctx context.Context, texts []string) ([]found, error)

	mu      sync.Mutex
	waiting []*item // not sent, in the order of arrival
	busy    int
}

// embed returns the vectors of a few texts.
func (q *queue) embed(ctx context.Context, texts []string) ([]found, error) {
	items := q.add(ctx, texts)
	defer q.leave(items)
	out := make([]found, len(items))
	for i, it := range items {
		select {
		case <-it.done:
			if it.err != nil {
				return nil, it.err
			}
			out[i] = it.found
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return out, nil
}

func (q *queue) add(ctx context.Context, texts []string) []*item {
	until := time.Now().Add(askWait)
	if at, ok := ctx.Deadline(); ok && at.Before(until) {
		until = at
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	there := make(map[string]*item, len(q.waiting))
	for _, it := range q.waiting {
		there[it.text] = it
	}
	items := make([]*item, len(texts))
	for i, t := range texts {
		it := there[t]
		if it == nil {
			it = &item{text: t, done: make(chan struct{})}
			q.waiting = append(q.waiting, it)
		}
		if it.callers++; until.After(it.until) {
			it.until = until
		}
		items[i] = it
	}
	q.start()
	return items
}

// leave takes a caller's texts back if nobody else waits for them.
func (q *queue) leave(items []*item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range items {
		it.callers--
	}
	kept := q.waiting[:0]
	for _, it := range q.waiting {
		if it.callers > 0 {
			kept = append(kept, it)
		}
	}
	clear(q.waiting[len(kept):])
	q.waiting = kept
}

// start sends what waits, as far as there is room. It is called with the mutex held.
func (q *queue) start() {
	for q.busy < requests && len(q.waiting) > 0 {
		n := min(len(q.waiting), providerapi.MaxTexts)
		batch := append([]*item(nil), q.waiting[:n]...)
		q.waiting = append(q.waiting[:0], q.waiting[n:]...)
		q.busy++
		go q.send(batch)
	}
}

// send asks for the vectors of some texts. The request may take as long as the most patient
// caller waits.
func (q *queue) send(batch []*item) {
	var until time.Time
	q.mu.Lock()
	for _, it := range batch {
		if it.until.After(until) {
			until = it.until
		}
	}
	q.mu.Unlock()
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	q.answer(ctx, batch)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy--
	q.start()
}

// answer ends the waiting for some texts. If one of them is too long for the model, the others
// are not to suffer, so each half is asked for alone.
func (q *queue) answer(ctx context.Context, batch []*item) {
	texts := make([]string, len(batch))
	for i, it := range batch {
		texts[i] = it.text
	}
	got, err := q.ask(ctx, texts)
	if errors.Is(err, bus.ErrTooLarge) && len(batch) > 1 {
		q.answer(ctx, batch[:len(batch)/2])
		q.answer(ctx, batch[len(batch)/2:])
		return
	}
	for i, it := range batch {
		if it.err = err; err == nil {
			it.found = got[i]
		}
		close(it.done)
	}
}
