package shell

import (
	"context"
	"fmt"
	"slices"
	"time"

	"skandha.dev/pkg/subject"
)

// What a core gives executors to answer its first question. Without it the first
// turn after a start would be planned with the tools of those that were quickest.
const (
	settleQuiet = 10 * time.Millisecond
	settleMost  = 200 * time.Millisecond
)

// settle waits until nobody has announced itself for a moment.
func (d *Directory) settle(ctx context.Context) {
	end := time.After(settleMost)
	for {
		select {
		case <-d.next():
		case <-time.After(settleQuiet):
			return
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}

// next is closed with the next announcement.
func (d *Directory) next() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.news
}

// await waits until all of the instances have announced themselves.
func (d *Directory) await(ctx context.Context, all ...subject.Instance) error {
	for {
		next := d.next()
		i := slices.IndexFunc(all, func(id subject.Instance) bool { return !d.is(id) })
		if i < 0 {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("the executor %s has not announced itself: %w", all[i], ctx.Err())
		}
	}
}
