package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/docker/go-units"
	"github.com/nats-io/nuid"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/workspace"
	"skandha.dev/services/sandbox/agent"
)

// Sandbox is the workspace of a sandbox; *agent.Conn implements it.
type Sandbox interface {
	Survey(ctx context.Context, maxFiles int) (agent.Survey, error)
	Gather(ctx context.Context, paths []json.RawMessage, each func(f agent.Found, content io.Reader) error) error
	Import(ctx context.Context, archive io.Reader) error
}

// Limits bound what is stored of a session.
type Limits struct {
	Bytes int64 // of all files
	Files int   // files, directories and links
}

// TooLargeError reports a workspace that exceeds the limits.
type TooLargeError struct {
	Limits  Limits
	Bytes   int64    // 0: not known
	Largest []string // the largest files, with their sizes
}

// Error implements error.
func (e *TooLargeError) Error() string {
	if e.Bytes == 0 {
		return fmt.Sprintf("/workspace has more than the %d files that are saved for a session (SKANDHA_SANDBOX_KEEP_FILES)",
			e.Limits.Files)
	}
	return fmt.Sprintf("the files in /workspace have %s, and at most %s are saved for a session (SKANDHA_SANDBOX_KEEP); "+
		"the largest: %s", size(e.Bytes), size(e.Limits.Bytes), strings.Join(e.Largest, ", "))
}

func size(n int64) string { return units.BytesSize(float64(n)) }

// ErrOvertaken means that another instance has the session: this one must not save any more.
var ErrOvertaken = errors.New("another instance has the session")

// Copy is what is stored of the workspace of a sandbox.
type Copy struct {
	store  *workspace.Store
	limits Limits
	ref    subject.Ref

	head   workspace.Head // the last one stored, or the one to store first
	ready  bool           // head.Revision is known
	swept  bool           // what others have left of the session was removed
	files  map[string]*file
	packs  []*pack // those of the stored index
	index  []string
	fresh  []string // packs that the save in progress has stored
	closed int      // directories that cannot be read
}

// file is a file of the workspace as it was last seen.
type file struct {
	agent.Found
	sure   bool // a change since then would have been noticed
	chunks []chunk
}

// chunk is a part of a file, in a pack.
type chunk struct {
	pack   *pack
	offset int
	size   int
	digest workspace.Digest
}

// pack is a pack that is stored, or is about to be: then it has no name.
type pack struct{ workspace.Pack }

// New returns a Copy of an empty sandbox, of which nothing is stored.
func New(store *workspace.Store, limits Limits, ref subject.Ref, lease string, self subject.Instance) *Copy {
	c := &Copy{store: store, limits: limits, ref: ref}
	c.head = workspace.Head{
		Agent: ref.Agent, Session: ref.Session, Lease: lease, Epoch: 1, Instance: self,
	}
	c.forget()
	return c
}

// forget forgets what is stored, so that everything is stored anew, under other names: others may be about to
// remove what has the present ones.
func (c *Copy) forget() {
	c.files, c.packs, c.index, c.swept, c.ready = map[string]*file{}, nil, nil, false, false
	c.head.Token = nuid.Next()
}

// Head returns the last head that was stored.
func (c *Copy) Head() workspace.Head { return c.head }

// Change is how a workspace differs from what is stored of it.
type Change struct {
	// Bytes are to be read.
	Bytes int64

	survey  agent.Survey
	differs bool              // something is certain to have changed
	read    []json.RawMessage // the files whose content is to be read
}

// Any reports whether there is something to save.
func (ch *Change) Any() bool { return ch.differs || len(ch.read) > 0 }

// Closed is the number of directories that cannot be read, and whose files are not saved.
func (ch *Change) Closed() int { return ch.survey.Closed }

// Look compares the workspace with what is stored. It fails with a [TooLargeError] if the workspace exceeds the
// limits.
func (c *Copy) Look(ctx context.Context, sandbox Sandbox) (*Change, error) {
	s, err := sandbox.Survey(ctx, c.limits.Files)
	if e, ok := errors.AsType[*agent.Error](err); ok && e.Code == "too_large" {
		return nil, &TooLargeError{Limits: c.limits}
	}
	if err != nil {
		return nil, fmt.Errorf("looking at the workspace: %w", err)
	}
	ch := &Change{survey: s, differs: !c.stored() || len(s.Found) != len(c.files) || s.Closed != c.closed}
	var all int64
	for i := range s.Found {
		f := &s.Found[i]
		all += f.Size
		known := c.files[string(f.Path)]
		same := known != nil && known.same(f)
		ch.differs = ch.differs || !same
		if f.Kind == "f" && f.Size > 0 && (!same || !known.sure) {
			ch.read = append(ch.read, f.Path)
			ch.Bytes += f.Size
		}
	}
	if all > c.limits.Bytes {
		return nil, &TooLargeError{Limits: c.limits, Bytes: all, Largest: largest(s.Found)}
	}
	return ch, nil
}

// stored reports whether a snapshot of this sandbox is stored.
func (c *Copy) stored() bool { return len(c.index) > 0 }

// same reports whether a file has not changed since it was seen.
func (f *file) same(now *agent.Found) bool {
	return f.Kind == now.Kind && f.Mode == now.Mode && f.Time == now.Time && f.Size == now.Size &&
		string(f.Target) == string(now.Target) && (f.Kind != "f" || f.Identity == now.Identity)
}

// largest returns the three largest files.
func largest(found []agent.Found) []string {
	files := slices.Clone(found)
	slices.SortFunc(files, func(a, b agent.Found) int { return cmp.Compare(b.Size, a.Size) })
	var out []string
	for _, f := range files[:min(3, len(files))] {
		out = append(out, fmt.Sprintf("%.200s (%s)", agent.Shown(f.Path), size(f.Size)))
	}
	return out
}

// adopt makes what was just put into a new sandbox known, so that it is not read again.
func (c *Copy) adopt(s agent.Survey) {
	for i := range s.Found {
		now := &s.Found[i]
		if f := c.files[string(now.Path)]; f != nil {
			f.Identity, f.sure = now.Identity, now.Sure(s)
		}
	}
}

// Moved tells the copy that the workspace was copied into another sandbox.
func (c *Copy) Moved(ctx context.Context, sandbox Sandbox) error {
	s, err := sandbox.Survey(ctx, c.limits.Files)
	if err != nil {
		return fmt.Errorf("looking at the workspace: %w", err)
	}
	c.adopt(s)
	return nil
}
