package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// StreamUse is what a stream holds.
type StreamUse struct {
	Name     string
	Messages uint64
	Bytes    uint64
	MaxBytes int64 // -1: no limit
}

// Use returns what the streams hold, buckets included. One that is missing is left out. With an error, the
// streams that were asked before are returned as well.
func (j *Journal) Use(ctx context.Context, c StreamsConfig) (out []StreamUse, err error) {
	for _, name := range c.names() {
		s, e := j.JetStream().Stream(ctx, name)
		if errors.Is(e, jetstream.ErrStreamNotFound) {
			continue
		}
		if e != nil {
			return out, fmt.Errorf("looking up stream %s: %w", name, e)
		}
		info := s.CachedInfo()
		out = append(out, StreamUse{name, info.State.Msgs, info.State.Bytes, info.Config.MaxBytes})
	}
	return out, nil
}
