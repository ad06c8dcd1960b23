package outbox

import (
	"context"
	"regexp"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/coreapi"
)

const (
	defaultList = 100
	maxList     = 1000
)

// Query answers a request for the messages that are not delivered.
func (o *Outbox) Query(ctx context.Context, q coreapi.OutboxQuery) (coreapi.OutboxPage, error) {
	out := coreapi.OutboxPage{Messages: []coreapi.OutboxMessage{}}
	switch q.State {
	case "", coreapi.OutboxWaiting, coreapi.OutboxSending, coreapi.OutboxDead:
	default:
		return out, bus.Errorf(bus.CodeInvalidArgument, "query: state is %q, want waiting, sending or dead", string(q.State))
	}
	if q.Limit < 0 || q.Limit > maxList {
		return out, bus.Errorf(bus.CodeInvalidArgument, "query: limit is %d, want 1 to %d, or 0 for %d", q.Limit, maxList, defaultList)
	}
	if q.ID != "" && !ids.MatchString(q.ID) {
		return out, bus.Errorf(bus.CodeInvalidArgument, "query: id is %.80q, want the whole id of a message, as `skandha outbox` "+
			"lists it", q.ID)
	}
	if q.Limit == 0 {
		q.Limit = defaultList
	}
	if q.Action != "" {
		if err := o.act(ctx, q); err != nil {
			return out, err
		}
	}
	for _, e := range o.list() {
		if q.State != "" && e.State != q.State || q.ID != "" && e.id != q.ID {
			continue
		}
		if len(out.Messages) == q.Limit {
			out.More = true
			break
		}
		out.Messages = append(out.Messages, coreapi.OutboxMessage{
			ID: e.id, Ref: e.Ref, Via: e.Via, To: e.Delivery.To, Kind: e.Delivery.Kind, Text: e.Delivery.Text, State: e.State,
			Attempts: e.Attempts, Error: e.Error, Next: e.Next, Stored: e.Stored,
		})
	}
	return out, nil
}

// ids is what [newID] returns: an id is a key of the bucket, where others are patterns.
var ids = regexp.MustCompile(`^[A-Za-z0-9_-]+\.[0-9a-f]{16}\.[0-9]{20}-[0-9]{3,}$`)

// act changes one message.
func (o *Outbox) act(ctx context.Context, q coreapi.OutboxQuery) error {
	if q.ID == "" {
		return bus.Errorf(bus.CodeInvalidArgument, "query: %s requires an id", q.Action)
	}
	found, err := o.bucket.Get(ctx, q.ID)
	if err != nil {
		return bus.Errorf(bus.CodeNotFound, "no message %q is in the outbox", q.ID)
	}
	e, err := decode(found)
	if err != nil {
		return err
	}
	switch {
	case q.Action == coreapi.OutboxResend && e.State != coreapi.OutboxDead:
		return bus.Errorf(bus.CodeConflict, "message %q is %s: only a dead one can be sent again", q.ID, e.State)
	case q.Action == coreapi.OutboxDrop && e.State == coreapi.OutboxSending:
		return bus.Errorf(bus.CodeConflict, "message %q is being sent", q.ID)
	case q.Action == coreapi.OutboxDrop:
		return o.remove(ctx, e)
	case q.Action != coreapi.OutboxResend:
		return bus.Errorf(bus.CodeInvalidArgument, "query: action is %q, want resend or drop", string(q.Action))
	}
	if e.Omitted {
		if err := o.restore(ctx, e); err != nil {
			return err
		}
	}
	e.State, e.Attempts, e.Error, e.Next, e.Stored = coreapi.OutboxWaiting, 0, "", time.Time{}, o.now().UTC()
	return o.store(ctx, e)
}
