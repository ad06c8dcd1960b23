package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Head describes a file, directory or link of the workspace, for a copy of it. Its fields are those of the
// agent's archive.
type Head struct {
	// Path is relative to the workspace, and Target what a link says. Both are JSON strings as the agent wrote
	// them, since a name need not be UTF-8.
	Path   json.RawMessage `json:"p"`
	Target json.RawMessage `json:"to,omitempty"`
	Kind   string          `json:"k"` // "f", "d" or "l"
	Mode   uint32          `json:"m"` // permission bits
	Time   int64           `json:"t"` // nanoseconds since 1970
	Size   int64           `json:"s"`
}

// Identity is what changes when a file does: code can set neither of them.
type Identity struct {
	Changed int64  `json:"c"` // ctime, in nanoseconds since 1970
	Inode   uint64 `json:"i"`
}

// Found is an element of a survey.
type Found struct {
	Head
	Identity
}

// Survey is what is in the workspace.
type Survey struct {
	Found  []Found // in the order of paths; a directory precedes what is in it
	Began  int64   // by the clock of the sandbox, in nanoseconds since 1970
	Closed int     // directories that could not be read
}

// maxNames bounds the paths of a survey, in bytes: as JSON, they fit into a list.
const maxNames = 2 << 20

// Survey lists everything in the workspace. With more than maxFiles elements, the error is an [*Error] with code
// "too_large".
func (c *Conn) Survey(ctx context.Context, maxFiles int) (Survey, error) {
	w := &work{
		op: "survey", fields: map[string]any{"max_files": maxFiles, "max_names": maxNames}, timeout: treeTimeout,
		allowed: allowed{data: maxList},
	}
	var body bytes.Buffer
	w.data = func(b []byte) error {
		body.Write(b)
		return nil
	}
	var a struct {
		Now    int64 `json:"now"`
		Closed int   `json:"closed"`
	}
	s := Survey{}
	if err := c.ask(ctx, w, &a); err != nil {
		return s, err
	}
	if err := decode(body.Bytes(), &s.Found); err != nil {
		return s, c.fail(fmt.Errorf("invalid survey of the agent: %w", err))
	}
	for i := range s.Found {
		if err := s.Found[i].check(); err != nil {
			return s, c.fail(fmt.Errorf("invalid survey of the agent: %w", err))
		}
	}
	s.Began, s.Closed = a.Now, max(0, a.Closed)
	return s, nil
}

// maxHead is the maximum length of the head of a record; agent.py has the same one.
const maxHead = 64 << 10

func (h *Head) check() error {
	switch {
	case h.Kind != "f" && h.Kind != "d" && h.Kind != "l":
		return fmt.Errorf("an element of kind %.20q", h.Kind)
	case !isString(h.Path) || h.Kind == "l" && !isString(h.Target):
		return errors.New("an element without a path or a target")
	case len(h.Path)+len(h.Target) > maxHead/2 || h.Size < 0 || h.Size > maxArchive || h.Time < 0:
		return errors.New("an element out of bounds")
	}
	h.Mode &= 0o777
	return nil
}

func isString(text json.RawMessage) bool { return len(text) > 2 && text[0] == '"' }

// Shown returns a path or a target for people.
func Shown(path json.RawMessage) string {
	var s string
	if json.Unmarshal(path, &s) != nil {
		return "?"
	}
	return cut(s, maxPath)
}

// errChanged reports a file that was written while it was read. It does not break the sandbox.
var errChanged = &Error{Code: "failed", Message: "the workspace changes while it is copied"}

// Gather reads files, in the given order. It calls each with the file's head and content; content must be read
// to its end. The error is an [*Error] if a file is not there any more, or changes meanwhile.
func (c *Conn) Gather(
	ctx context.Context, paths []json.RawMessage, each func(f Found, content io.Reader) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := gathered(r, paths, each)
		_ = r.CloseWithError(err) // ends the operation, which writes to the pipe
		ended <- err
	}()
	err := c.ask(ctx, &work{
		op: "gather", fields: archiveBounds(), timeout: treeTimeout, in: requestOf(paths),
		allowed: allowed{data: maxArchive + maxEntries*perEntry},
		data: func(b []byte) error {
			_, err := w.Write(b)
			return err
		},
	}, nil)
	_ = w.CloseWithError(err) // an end of file if it is nil
	if why := <-ended; why != nil && (err == nil || errors.Is(err, why)) {
		return why
	}
	return err
}

// requestOf encodes the paths of a gather.
func requestOf(paths []json.RawMessage) io.Reader {
	var b bytes.Buffer
	for _, p := range paths {
		b.Write(block(p))
	}
	b.Write(make([]byte, 4))
	return &b
}

// gathered reads the records of a gather.
func gathered(in io.Reader, paths []json.RawMessage, each func(Found, io.Reader) error) error {
	r := bufio.NewReaderSize(in, chunk)
	for _, p := range paths {
		var f Found
		if err := record(r, &f); err != nil {
			return err
		}
		if err := f.check(); err != nil {
			return err
		}
		if f.Kind != "f" || Shown(f.Path) != Shown(p) {
			return fmt.Errorf("the agent sent %.100q, want %.100q", f.Path, p)
		}
		f.Path = p
		content := io.LimitReader(r, f.Size)
		if err := each(f, content); err != nil {
			return err
		}
		var end Head
		if err := record(r, &end); err != nil {
			return err
		}
		if end.Kind != "same" {
			return errChanged
		}
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

func record(r io.Reader, v any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return fmt.Errorf("reading a record: %w", err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n == 0 || n > maxHead {
		return fmt.Errorf("a record of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return fmt.Errorf("reading a record: %w", err)
	}
	return decode(text, v)
}

// ArchiveWriter writes an archive for [Conn.Import].
type ArchiveWriter struct {
	w     io.Writer
	begun bool
}

// NewArchiveWriter returns a writer of an archive.
func NewArchiveWriter(w io.Writer) *ArchiveWriter { return &ArchiveWriter{w: w} }

// Add writes a head. The content of a file follows, which the caller writes.
func (a *ArchiveWriter) Add(h Head) error {
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("writing an archive: %w", err)
	}
	return a.write(block(text))
}

// Close ends the archive.
func (a *ArchiveWriter) Close() error { return a.write(make([]byte, 4)) }

func (a *ArchiveWriter) write(b []byte) error {
	if !a.begun {
		a.begun = true
		b = append([]byte("skandha workspace 1\n"), b...)
	}
	_, err := a.w.Write(b)
	return err
}

// Sure reports whether a later change of the file is certain to be noticed, if it was as found when the survey
// began: a kernel's clock advances in steps of some milliseconds.
func (i Identity) Sure(s Survey) bool { return i.Changed < s.Began-int64(50*time.Millisecond) }
