package timeline

import (
	"context"
	"fmt"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/turn"
)

// The limits of [Read].
const (
	turnCommits = 2000     // commits of one turn
	scanCommits = 20000    // commits of the session read for it
	scanBytes   = 64 << 20 // bytes of these commits
)

// Read reads the commits that concern the turn, from the one that took up its input to
// the one that ended it.
func Read(ctx context.Context, j *journal.Journal, ref subject.Ref, seq uint64) (out []turn.Stored, cut string, err error) {
	read, size := 0, 0
	for m, err := range j.Commits(ctx, ref, seq-1) {
		if err != nil {
			return nil, "", err
		}
		c, err := turn.Decode(ref, m)
		if err != nil {
			return nil, "", err
		}
		about, ends := concerns(c, seq)
		if about {
			out = append(out, c)
		}
		// Causes are processed in the order of the log: this one was processed, and began no
		// turn.
		if ends || len(out) == 0 && c.Header.Cursor >= seq {
			break
		}
		read, size = read+1, size+c.Bytes
		if read >= scanCommits || size >= scanBytes || len(out) >= turnCommits {
			return out, fmt.Sprintf(
				"the turn continues: read %d commits of the session, %d of them of this turn", read, len(out)), nil
		}
	}
	return out, "", nil
}

// concerns reports whether a commit concerns the turn of the input, and whether it ends it.
func concerns(c turn.Stored, seq uint64) (about, ends bool) {
	in, id := turn.Input{Sequence: seq}, event.TurnID(seq)
	about = c.Header.Trigger.Sequence == seq
	for _, e := range c.Events {
		in.See(e)
		about = about || e.Turn == id
	}
	return about || in.Perceived.Sequence != 0 || in.Over(), in.Over()
}
