package bus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/subject"
)

// FenceError is an [ErrFenceLost] with the sequence that the server uses as the session's
// last commit. In a damaged log, the server may not count a commit that exists, or may count
// one that it cannot read.
type FenceError struct {
	Last        uint64
	Description string // the server's error text
}

// Error implements error.
func (e *FenceError) Error() string { return ErrFenceLost.Error() + ": " + e.Description }

// Unwrap returns ErrFenceLost.
func (e *FenceError) Unwrap() error { return ErrFenceLost }

// fenceError parses "wrong last sequence: 42".
func fenceError(description string) error {
	_, n, found := strings.Cut(description, ": ")
	last, err := strconv.ParseUint(n, 10, 64)
	if !found || err != nil {
		return fmt.Errorf("%w: %s", ErrFenceLost, description)
	}
	return &FenceError{Last: last, Description: description}
}

// never is a sequence that no log reaches, so a commit after it is always refused.
const never = math.MaxInt64 - 1

// CommitFence asks the leader of the log for the sequence that it uses as the session's last
// commit, 0 if it has none: the value that [Bus.AppendCommit] requires as prev. It needs the
// permission to write commits, because it sends one that cannot be stored. Unless the log is
// damaged, the result is the sequence of [Bus.LastCommit].
func (b *Bus) CommitFence(ctx context.Context, ref subject.Ref) (uint64, error) {
	_, err := b.AppendCommit(ctx, ref, nil, never)
	var fence *FenceError
	switch {
	case errors.As(err, &fence):
		return fence.Last, nil
	case err == nil:
		return 0, fmt.Errorf("asking for the last commit of %s: the server stored a commit after sequence %d",
			ref, uint64(never))
	}
	return 0, fmt.Errorf("asking for the last commit of %s: %w", ref, err)
}

// LogState describes the log of all sessions.
type LogState struct {
	Created time.Time // when the stream was created; another time means another log
	Last    uint64    // sequence of the last message, readable or not
	Copies  int       // number of copies; if there are several, the one that answers may lag
}

// LogState asks the server about the log.
func (b *Bus) LogState(ctx context.Context) (LogState, error) {
	info, err := b.logInfo(ctx, "")
	if err != nil {
		return LogState{}, err
	}
	return LogState{Created: info.Created, Last: info.State.LastSeq, Copies: info.Config.Replicas}, nil
}
