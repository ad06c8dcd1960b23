package journal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// never is a sequence that no log reaches, so a commit after it is always refused.
const never = math.MaxInt64 - 1

// CommitFence asks the leader of the log for the sequence that it uses as the session's last
// commit, 0 if it has none: the value that [Journal.AppendCommit] requires as prev. It needs the
// permission to write commits, because it sends one that cannot be stored. Unless the log is
// damaged, the result is the sequence of [Journal.LastCommit].
func (j *Journal) CommitFence(ctx context.Context, ref subject.Ref) (uint64, error) {
	_, err := j.AppendCommit(ctx, ref, nil, never)
	var fence *bus.FenceError
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
	Created  time.Time // when the stream was created; another time means another log
	Restored bool      // it was created from a backup, while no core ran
	Last     uint64    // sequence of the last message, readable or not
	Copies   int       // number of copies; if there are several, the one that answers may lag
}

// Replaced reports whether what was stored at a time was stored in an earlier log than this one. The clocks may
// differ by skew; of a log that was restored, what is that old is certainly of the earlier one.
func (l LogState) Replaced(at time.Time, skew time.Duration) bool {
	if l.Restored {
		skew = 0
	}
	return l.Created.After(at.Add(skew))
}

// LogState asks the server about the log.
func (j *Journal) LogState(ctx context.Context) (LogState, error) {
	info, err := j.LogInfo(ctx, "")
	if err != nil {
		return LogState{}, err
	}
	return LogState{
		Created: info.Created, Restored: info.Config.Metadata[MetaRestored] != "",
		Last: info.State.LastSeq, Copies: info.Config.Replicas,
	}, nil
}
