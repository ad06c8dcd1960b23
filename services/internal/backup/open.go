package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"skandha.dev/pkg/bus"
)

// The reasons to refuse an archive.
var (
	ErrNotArchive = errors.New("not an archive of skandha backup")
	ErrTruncated  = errors.New("the archive has no end: it is truncated, or the backup failed")
	ErrAltered    = errors.New("the archive is damaged or was altered")
)

// Archive is an archive that is complete and unaltered.
type Archive struct {
	Manifest
	r     io.ReaderAt
	parts map[string]*found
}

// found is a part as it is in the file.
type found struct {
	Part
	sum        hash.Hash
	start, end int64
}

// scan reads an archive to its end.
type scan struct {
	parts            map[string]*found
	last             *found
	manifest, digest []byte
	end              int64 // of the last entry
}

// Open reads the whole archive and compares it with its manifest.
func Open(r io.ReaderAt, size int64) (*Archive, error) {
	s := &scan{parts: map[string]*found{}}
	if err := s.run(io.NewSectionReader(r, 0, size)); err != nil {
		return nil, err
	}
	if s.digest == nil {
		return nil, ErrTruncated
	}
	if s.end+2*blockBytes != size {
		return nil, fmt.Errorf("%w: %d bytes follow its end, or are missing", ErrAltered, size-s.end-2*blockBytes)
	}
	sum := sha256.Sum256(s.manifest)
	if strings.TrimSpace(string(s.digest)) != hex.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("%w: the digest of its manifest differs", ErrAltered)
	}
	a := &Archive{r: r, parts: s.parts}
	if err := a.decode(s.manifest); err != nil {
		return nil, err
	}
	return a, a.check()
}

func (s *scan) run(file io.Reader) error {
	at := &counter{r: file}
	for entries := tar.NewReader(struct{ io.Reader }{at}); ; {
		h, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return ErrTruncated
		case err != nil && s.end == 0:
			return fmt.Errorf("%w: %w", ErrNotArchive, err)
		case err != nil:
			return fmt.Errorf("%w: %w", ErrAltered, err)
		case s.digest != nil:
			return fmt.Errorf("%w: %q follows its end", ErrAltered, h.Name)
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("%w: %q is not a regular file", ErrAltered, h.Name)
		}
		start := s.end
		s.end = at.n + (h.Size+blockBytes-1)/blockBytes*blockBytes
		if err := s.entry(h, entries, start); err != nil {
			return err
		}
	}
}

func (s *scan) entry(h *tar.Header, r io.Reader, start int64) error {
	limit := int64(maxChunk)
	if h.Name == manifestName {
		limit = maxManifest
	}
	if h.Size > limit {
		return fmt.Errorf("%w: %q has %d bytes, at most %d are possible", ErrAltered, h.Name, h.Size, limit)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return ErrTruncated
	}
	switch {
	case h.Name == manifestName && s.manifest == nil:
		s.manifest = data
		return nil
	case h.Name == digestName && s.manifest != nil:
		s.digest = data
		return nil
	}
	path, number, ok := chunkOf(h.Name)
	if !ok || s.manifest != nil {
		if start == 0 {
			return fmt.Errorf("%w: it begins with %q", ErrNotArchive, h.Name)
		}
		return fmt.Errorf("%w: unexpected entry %q", ErrAltered, h.Name)
	}
	p := s.parts[path]
	if p == nil {
		p = &found{Part: Part{Path: path}, sum: sha256.New(), start: start}
		s.parts[path], s.last = p, p
	}
	if p.Chunks++; s.last != p || number != fmt.Sprintf("%08d", p.Chunks) {
		return fmt.Errorf("%w: %q is out of order", ErrAltered, h.Name)
	}
	p.Bytes += h.Size
	p.end = s.end
	_, _ = p.sum.Write(data) // never fails
	return nil
}

func (a *Archive) decode(manifest []byte) error {
	var head struct {
		Format  int    `json:"format"`
		Version string `json:"version"`
	}
	if err := json.Unmarshal(manifest, &head); err != nil {
		return fmt.Errorf("%w: its manifest: %w", ErrAltered, err)
	}
	if head.Format != Format {
		return fmt.Errorf("the archive has format %d and was written by version %s; this version reads format %d: "+
			"restore it with the version that wrote it", head.Format, head.Version, Format)
	}
	d := json.NewDecoder(bytes.NewReader(manifest))
	d.DisallowUnknownFields()
	if err := d.Decode(&a.Manifest); err != nil {
		return fmt.Errorf("%w: its manifest: %w", ErrAltered, err)
	}
	return nil
}

// check compares the manifest with what the archive contains.
func (a *Archive) check() error {
	names := map[string]bool{}
	for _, s := range a.Streams {
		if !streamName.MatchString(s.Name) || names[s.Name] || !strings.HasPrefix(s.Path, "streams/"+s.Name+"/") {
			return fmt.Errorf("%w: stream %q of the manifest", ErrAltered, s.Name)
		}
		names[s.Name] = true
		if err := a.holds("stream "+s.Name, s.Part); err != nil {
			return err
		}
		if _, err := s.state(); err != nil {
			return fmt.Errorf("%w: %w", ErrAltered, err)
		}
		if _, err := adapted(s, Adapt{}); err != nil {
			return fmt.Errorf("%w: stream %s: %w", ErrAltered, s.Name, err)
		}
	}
	for _, d := range a.Dirs {
		if !dirName.MatchString(d.Name) || names["/"+d.Name] || d.Path != "directories/"+d.Name {
			return fmt.Errorf("%w: directory %q of the manifest", ErrAltered, d.Name)
		}
		names["/"+d.Name] = true
		if err := a.holds("directory "+d.Name, d.Part); err != nil {
			return err
		}
	}
	if !names[bus.StreamSessions] {
		return fmt.Errorf("%w: it has no stream %s", ErrAltered, bus.StreamSessions)
	}
	return nil
}

func (a *Archive) holds(what string, want Part) error {
	p := a.parts[want.Path]
	if p == nil {
		return fmt.Errorf("%w: %s is missing", ErrAltered, what)
	}
	if p.SHA256 = hex.EncodeToString(p.sum.Sum(nil)); p.Part != want {
		return fmt.Errorf("%w: %s: its digest differs from the manifest", ErrAltered, what)
	}
	return nil
}

// reader reads a part, and compares it with the manifest once more.
func (a *Archive) reader(p Part) io.Reader {
	at := a.parts[p.Path]
	return &partReader{
		tar: tar.NewReader(io.NewSectionReader(a.r, at.start, at.end-at.start)), sum: sha256.New(), want: p.SHA256,
	}
}

type partReader struct {
	tar  *tar.Reader
	open bool // the current chunk has more
	sum  hash.Hash
	want string
}

// Read implements [io.Reader].
func (p *partReader) Read(b []byte) (int, error) {
	for {
		if !p.open {
			_, err := p.tar.Next()
			if errors.Is(err, io.EOF) && hex.EncodeToString(p.sum.Sum(nil)) != p.want {
				return 0, fmt.Errorf("%w while it was read", ErrAltered)
			}
			if err != nil {
				return 0, err
			}
			p.open = true
		}
		n, err := p.tar.Read(b)
		if errors.Is(err, io.EOF) {
			p.open, err = false, nil
		}
		_, _ = p.sum.Write(b[:n]) // never fails
		if n > 0 || err != nil {
			return n, err
		}
	}
}
