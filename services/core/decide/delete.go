package decide

import (
	"fmt"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/services/core/commands"
)

// DeletedReason is the reason of checkpoints that keep of a session only that it was deleted.
const DeletedReason = "deleted"

// delete locks the session. Its content is removed later (rule 17), unless somebody changes their mind.
func (x *causeDecider) delete() string {
	x.endAll("/delete by " + string(x.c.Writer))
	until := x.head.Now.Add(x.env.Undelete + time.Second - time.Millisecond).Truncate(time.Second) // as shown to users
	x.emit(event.SessionLocked{
		Reason:  fmt.Sprintf("%s deleted this session; /undelete brings it back until %s", x.c.Writer, until.Format(time.RFC3339)),
		Deleted: &event.Deletion{By: x.c.Writer, Until: until}, Stops: x.s.stops(""),
	})
	return commands.Deleted(until)
}

// undelete brings a deleted session back.
func (x *causeDecider) undelete() string {
	if x.s.Deleted == nil {
		return commands.NotDeleted
	}
	open := x.s.clone()
	open.Locked, open.Deleted = "", nil
	x.emit(event.Checkpoint{State: encode(open), Reason: "/undelete by " + string(x.c.Writer)})
	return commands.Undeleted(open.Turns)
}

// tombstone is what stays of a deleted session: which causes it has processed, and that it was deleted.
func (s *State) tombstone() *State {
	n := New(s.Ref)
	n.Cursor, n.Commits, n.UI = s.Cursor, s.Commits, event.StateLocked
	n.Seen, n.SeenBase, n.SeenChain = s.Seen, s.SeenBase, s.SeenChain
	n.Deleted = &Deleted{Deletion: s.Deleted.Deletion, Gone: true}
	n.Locked = fmt.Sprintf("%s deleted this session, and its content was removed; use another one", s.Deleted.By)
	return n
}
