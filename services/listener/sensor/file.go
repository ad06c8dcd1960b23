package sensor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"skandha.dev/services/listener/mapping"
)

// The bounds of one look at a file.
const (
	chunk    = 256 << 10 // bytes
	maxLines = 256
	tail     = 64 // bytes before the position that tell the file from another one
)

// place is a position in a file.
type place struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
	Tail   []byte `json:"tail,omitempty"` // the bytes before the offset
	// the beginning of the line at the offset is dropped, because the line is too long
	Skip bool `json:"skip,omitempty"`
}

// fileSource follows a file.
type fileSource struct {
	cfg   File
	file  *os.File
	at    place
	known bool // there is a position
	moved bool // the path named another file at the last look
}

func (f *fileSource) run(ctx context.Context, s *sink) (err error) {
	defer f.close()
	f.at = place{}
	if f.known, err = s.load(ctx, &f.at); err != nil {
		return err
	}
	tick := time.NewTicker(f.cfg.Interval)
	defer tick.Stop()
	for {
		more, err := f.look(ctx, s)
		if err != nil {
			return err
		}
		s.ok()
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (f *fileSource) close() {
	if f.file != nil {
		_ = f.file.Close() // only read
		f.file = nil
	}
}

// look reads what is new, and reports whether there may be more at once.
func (f *fileSource) look(ctx context.Context, s *sink) (more bool, err error) {
	if f.file == nil {
		if err := f.open(); err != nil {
			return false, err
		}
		if err := s.save(ctx, f.at); err != nil { // so that a rotation before the first line loses none
			return false, err
		}
	}
	if err := f.checkTail(); err != nil {
		return false, err
	}
	if more, err = f.read(ctx, s); more || err != nil {
		return more, err
	}
	// All of the open file is read. Its successor, after a rotation, begins at its start.
	now, err := os.Stat(f.cfg.Path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // between renaming and creating
	}
	if err != nil {
		return false, err
	}
	if f.is(now) {
		return false, nil
	}
	if !f.moved { // a writer may still have the old one open: look once more
		f.moved = true
		return false, nil
	}
	f.moved = false
	f.close()
	if f.file, err = openRegular(f.cfg.Path); err != nil {
		return false, err
	}
	return true, f.begin(0)
}

// open opens the file of the position: the configured one, or the one it was renamed to.
func (f *fileSource) open() error {
	file, err := openRegular(f.cfg.Path)
	if err != nil && (!f.known || !errors.Is(err, os.ErrNotExist)) {
		return err
	}
	if !f.known {
		f.file = file
		info, err := file.Stat()
		if err != nil {
			return err
		}
		begin := int64(0)
		if f.cfg.From != FromStart {
			begin = info.Size()
		}
		f.known = true
		return f.begin(begin)
	}
	if file != nil {
		info, err := file.Stat()
		if err == nil && f.is(info) {
			f.file = file
			return nil
		}
		_ = file.Close() // only read
	}
	if f.file = f.renamed(); f.file != nil {
		return nil
	}
	if f.file, err = openRegular(f.cfg.Path); err != nil { // the rest of the old one is lost
		return err
	}
	return f.begin(0)
}

// renamed finds the file of the position under another name.
func (f *fileSource) renamed() *os.File {
	dir, base := filepath.Split(f.cfg.Path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), base) || e.Name() == base {
			continue
		}
		if info, err := e.Info(); err != nil || !f.is(info) {
			continue
		}
		if file, err := openRegular(filepath.Join(dir, e.Name())); err == nil {
			return file
		}
	}
	return nil
}

// openRegular opens a regular file; a pipe would block.
func openRegular(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		_ = file.Close() // err says why
		return nil, err
	}
	return file, nil
}

// is reports whether the file is that of the position.
func (f *fileSource) is(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && uint64(st.Dev) == f.at.Device && st.Ino == f.at.Inode //nolint:unconvert // its type differs between systems
}

// begin sets the position to an offset of the open file.
func (f *fileSource) begin(offset int64) error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("the system does not tell files apart")
	}
	f.at = place{Device: uint64(st.Dev), Inode: st.Ino, Offset: offset} //nolint:unconvert // its type differs between systems
	return f.remember(nil)
}

// remember keeps the bytes before the offset; read are the last ones that were read.
func (f *fileSource) remember(read []byte) error {
	n := min(tail, f.at.Offset)
	if int64(len(read)) >= n {
		f.at.Tail = bytes.Clone(read[int64(len(read))-n:])
		return nil
	}
	f.at.Tail = make([]byte, n)
	_, err := f.file.ReadAt(f.at.Tail, f.at.Offset-n)
	return err
}

// checkTail begins at the start if the file was truncated, or is another one in its place.
func (f *fileSource) checkTail() error {
	before := make([]byte, len(f.at.Tail))
	n, err := f.file.ReadAt(before, f.at.Offset-int64(len(before)))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n == len(before) && bytes.Equal(before, f.at.Tail) {
		return nil
	}
	return f.begin(0)
}

// read delivers the complete lines after the position, and moves it.
func (f *fileSource) read(ctx context.Context, s *sink) (more bool, err error) {
	buf := make([]byte, chunk+f.cfg.MaxLine)
	n, err := f.file.ReadAt(buf, f.at.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	full := n == len(buf)
	buf = buf[:n]
	next := f.at
	used := 0
	var lines []mapping.Reading
	for len(lines) < maxLines {
		end := bytes.IndexByte(buf[used:], '\n')
		if end < 0 {
			if int64(len(buf)-used) > f.cfg.MaxLine { // drop what is there, and the rest when it comes
				if !next.Skip {
					s.stats.Unreadable.Add(1)
				}
				used, next.Skip = len(buf), true
			}
			break
		}
		line := bytes.TrimSuffix(buf[used:used+end], []byte("\r"))
		switch {
		case next.Skip:
			next.Skip = false
		case int64(len(line)) > f.cfg.MaxLine:
			s.stats.Unreadable.Add(1)
		case len(line) > 0:
			offset := f.at.Offset + int64(used)
			lines = append(lines, mapping.Reading{
				Name: filepath.Base(f.cfg.Path), Data: bytes.Clone(line), Again: true,
				ID: id(f.at.Device, f.at.Inode, offset, string(line)),
			})
		}
		used += end + 1
	}
	if used == 0 && next.Skip == f.at.Skip {
		return false, nil
	}
	if err := s.deliver(ctx, lines); err != nil {
		return false, err
	}
	next.Offset += int64(used)
	f.at = next
	if err := f.remember(buf[:used]); err != nil {
		return false, err
	}
	return full || len(lines) == maxLines, s.save(ctx, f.at)
}
