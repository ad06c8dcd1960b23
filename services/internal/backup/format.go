package backup

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Format is the version of archives that this package writes, and the only one that it reads.
const Format = 1

// The last entries of an archive.
const (
	manifestName = "manifest.json"
	digestName   = "manifest.sha256"
)

const (
	chunkBytes    = 256 << 10 // of a part; also what the server is sent at once
	maxChunk      = 1 << 20   // that is read
	maxManifest   = 16 << 20
	blockBytes    = 512 // of tar
	manifestBytes = 0o600
)

// Manifest says what an archive contains.
type Manifest struct {
	Format  int       `json:"format"`
	Version string    `json:"version"`           // of the program that wrote it
	Server  string    `json:"server"`            // version of the NATS server
	Account string    `json:"account,omitempty"` // on the bus; empty: that enforced no rights
	Begun   time.Time `json:"begun"`
	Ended   time.Time `json:"ended"`
	Streams []Stream  `json:"streams"`
	Dirs    []Dir     `json:"directories,omitempty"`
	// Skipped names streams that are in memory, which a server cannot take a snapshot of.
	Skipped []string `json:"skipped,omitempty"`
}

// Part is a sequence of chunks in the archive.
type Part struct {
	Path   string `json:"path"` // of its chunks, whose names are numbers
	Chunks int    `json:"chunks"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // of the chunks, one after the other
}

// Stream is a stream in the archive. Config and State are as the server gave them.
type Stream struct {
	Name string `json:"name"`
	Part
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
}

// Dir is a directory in the archive.
type Dir struct {
	Name string `json:"name"`
	Part
	Files   int `json:"files"`
	Skipped int `json:"skipped,omitempty"` // links, sockets and devices, which are not kept
}

// state decodes the state of the stream.
func (s Stream) state() (st jetstream.StreamState, err error) {
	if err := json.Unmarshal(s.State, &st); err != nil {
		return st, fmt.Errorf("the state of stream %s in the manifest: %w", s.Name, err)
	}
	return st, nil
}

// Messages is how many messages the stream has.
func (s Stream) Messages() uint64 {
	st, err := s.state()
	if err != nil {
		return 0 // Open has refused it
	}
	return st.Msgs
}

var (
	streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,255}$`)
	dirName    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`)
	partPath   = regexp.MustCompile(`^(streams/[A-Za-z0-9_-]{1,200}/[0-9]{1,4}|directories/[a-z][a-z0-9-]{0,63})$`)
)

// writer writes entries of a tar file.
type writer struct {
	tar *tar.Writer
	now time.Time
}

func (w *writer) entry(name string, data []byte) error {
	err := w.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: manifestBytes, ModTime: w.now,
		Format: tar.FormatUSTAR,
	})
	if err == nil {
		_, err = w.tar.Write(data)
	}
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// part is an [io.WriteCloser] that writes one part.
type part struct {
	Part
	to  *writer
	sum hash.Hash
	buf []byte
}

func (w *writer) part(path string) *part {
	return &part{Part: Part{Path: path}, to: w, sum: sha256.New(), buf: make([]byte, 0, chunkBytes)}
}

// Write implements [io.Writer].
func (p *part) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		k := min(len(b), chunkBytes-len(p.buf))
		p.buf, b = append(p.buf, b[:k]...), b[k:]
		if len(p.buf) == chunkBytes {
			if err := p.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (p *part) flush() error {
	if len(p.buf) == 0 {
		return nil
	}
	p.Chunks++
	p.Bytes += int64(len(p.buf))
	_, _ = p.sum.Write(p.buf) // never fails
	err := p.to.entry(fmt.Sprintf("%s/%08d", p.Path, p.Chunks), p.buf)
	p.buf = p.buf[:0]
	return err
}

// Close writes the rest.
func (p *part) Close() error {
	err := p.flush()
	p.SHA256 = hex.EncodeToString(p.sum.Sum(nil))
	return err
}

// end writes the manifest and its digest.
func (w *writer) end(m Manifest) error {
	body, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	sum := sha256.Sum256(body)
	if err := w.entry(manifestName, body); err != nil {
		return err
	}
	if err := w.entry(digestName, []byte(hex.EncodeToString(sum[:])+"\n")); err != nil {
		return err
	}
	if err := w.tar.Close(); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// counter knows how far a file has been read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// chunkOf splits the name of an entry into the path of its part and the chunk's number.
func chunkOf(name string) (path, number string, ok bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 || !partPath.MatchString(name[:i]) || len(name)-i-1 != 8 {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}
