package plugin

import (
	"context"
	"encoding/json"
	"fmt"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// DefaultSearchLimit is the maximum number of entries of a search that sets no limit.
const DefaultSearchLimit = 5

// The limits of a storage request, as in schemas/storage/request.json.
const (
	maxKey    = 512 // bytes
	maxSearch = 1000
)

// StorageBackend is a [Handler] that makes a plugin a storage backend. It serves the verbs
// whose functions are not nil. The functions receive valid requests, and Search one with a
// limit. An error is sent with the code of the [*bus.Error] that it wraps. Put and Delete
// must be idempotent: the same request may arrive twice.
type StorageBackend struct {
	Put    func(ctx context.Context, r StorageRequest) error
	Get    func(ctx context.Context, r StorageRequest) (value json.RawMessage, found bool, err error)
	Delete func(ctx context.Context, r StorageRequest) error // no error if the key does not exist
	Search func(ctx context.Context, r StorageRequest) ([]StorageEntry, error)
	Index  StorageIndex // serves the verbs of an index
}

func (s StorageBackend) add(p *parts) { p.storage = append(p.storage, s) }

func (s StorageBackend) verbs() (out []StorageVerb) {
	for _, v := range []struct {
		verb StorageVerb
		has  bool
	}{{Put, s.Put != nil}, {Get, s.Get != nil}, {Delete, s.Delete != nil}, {Search, s.Search != nil}} {
		if v.has {
			out = append(out, v.verb)
		}
	}
	return out
}

func (s StorageBackend) bind(r *runtime, verb StorageVerb) answerFunc {
	return func(ctx context.Context, body []byte, _ func()) ([]byte, error) {
		var req StorageRequest
		if err := json.Unmarshal(body, &req); err != nil {
			return nil, bus.Errorf(bus.CodeInvalidArgument,
				"the request is not a storage request (schemas/storage/request.json): %v", err)
		}
		if err := req.check(verb); err != nil {
			return nil, err
		}
		if verb == Search && req.Limit == 0 {
			req.Limit = DefaultSearchLimit
		}
		reply, err := contain(r, "storage "+string(verb), func() (StorageReply, error) { return s.serve(ctx, verb, req) })
		if err != nil {
			return nil, err
		}
		return encode(reply)
	}
}

func (s StorageBackend) serve(
	ctx context.Context, verb StorageVerb, req StorageRequest,
) (reply StorageReply, err error) {
	switch verb {
	case Put:
		err = s.Put(ctx, req)
	case Get:
		reply.Value, reply.Found, err = s.Get(ctx, req)
		if !reply.Found {
			reply.Value = nil
		}
	case Delete:
		err = s.Delete(ctx, req)
	case Search:
		reply.Entries, err = s.Search(ctx, req)
		reply.Entries = reply.Entries[:min(len(reply.Entries), req.Limit)]
	}
	return reply, err
}

// check validates a request as the schema does; the error names the field.
func (r StorageRequest) check(verb StorageVerb) error {
	var wrong string
	switch {
	case r.Verb != verb:
		wrong = fmt.Sprintf("verb is %q, but the subject has %q", clip(string(r.Verb)), verb)
	case !subject.Valid(r.Agent):
		wrong = fmt.Sprintf("agent %q is not a valid id", clip(string(r.Agent)))
	case !subject.Valid(r.Collection):
		wrong = fmt.Sprintf("collection %q is not a valid id", clip(r.Collection))
	case verb != Search && (r.Key == "" || len(r.Key) > maxKey):
		wrong = fmt.Sprintf("key has %d bytes, want 1 to %d", len(r.Key), maxKey)
	case verb == Put && len(r.Value) == 0:
		wrong = "value is missing"
	case verb == Search && r.Query == "":
		wrong = "query is missing"
	case verb == Search && (r.Limit < 0 || r.Limit > maxSearch):
		wrong = fmt.Sprintf("limit is %d, want 1 to %d, or 0 for %d", r.Limit, maxSearch, DefaultSearchLimit)
	default:
		return nil
	}
	return bus.Errorf(bus.CodeInvalidArgument, "%s", wrong)
}
