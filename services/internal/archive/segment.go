package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// Format is the version of the format of segments.
const Format = 1

// ErrDamaged means that a segment is not what was archived.
var ErrDamaged = errors.New("damaged archive")

// Header is the first line of a segment.
type Header struct {
	Format int `json:"skandha_archive"`
	subject.Ref
	Log time.Time `json:"log"` // when the log was created: sequences are of that log
}

// line is a message as it is archived. Data holds a body of JSON, Bytes any other one.
type line struct {
	Sequence uint64          `json:"sequence"`
	Time     time.Time       `json:"time"`
	Subject  string          `json:"subject"`
	Header   nats.Header     `json:"header,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	Bytes    *string         `json:"bytes,omitempty"` // base64

	End *end `json:"end,omitempty"`
}

// end is the last line of a segment.
type end struct {
	Messages int    `json:"messages"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Commit   uint64 `json:"commit"` // the last commit; 0: there is none
	SHA256   string `json:"sha256"` // of the lines before
}

// encoder writes the lines of a segment.
type encoder struct {
	buf  bytes.Buffer
	zip  *zstd.Encoder
	sum  hash.Hash
	raw  int
	end  end
	head Header
}

func newEncoder(h Header) (*encoder, error) {
	e := &encoder{sum: sha256.New(), head: h}
	var err error
	if e.zip, err = zstd.NewWriter(&e.buf, zstd.WithEncoderConcurrency(1)); err != nil {
		return nil, err
	}
	b, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	return e, e.put(b)
}

func (e *encoder) put(b []byte) error {
	b = append(b, '\n')
	e.sum.Write(b)
	e.raw += len(b)
	_, err := e.zip.Write(b)
	return err
}

func (e *encoder) add(m bus.StoredMsg, commit bool) error {
	b, err := encodeLine(m)
	if err != nil {
		return err
	}
	if e.end.Messages++; e.end.First == 0 {
		e.end.First = m.Seq
	}
	e.end.Last = m.Seq
	if commit {
		e.end.Commit = m.Seq
	}
	return e.put(b)
}

// encodeLine keeps the bytes of a body: as they are, if they are JSON that a line can hold.
func encodeLine(m bus.StoredMsg) ([]byte, error) {
	l := line{Sequence: m.Seq, Time: m.Time, Subject: m.Subject, Header: m.Header}
	raw := json.Valid(m.Data) && !bytes.ContainsAny(m.Data, "\r\n") && len(bytes.TrimSpace(m.Data)) == len(m.Data)
	if !raw {
		text := base64.StdEncoding.EncodeToString(m.Data)
		l.Bytes = &text
	}
	b, err := json.Marshal(l)
	if err != nil || !raw {
		return b, err
	}
	b = append(b[:len(b)-1], `,"data":`...) // encoding/json would change spaces and escape characters
	return append(append(b, m.Data...), '}'), nil
}

// done returns the compressed segment and its name.
func (e *encoder) done() (name string, body []byte, err error) {
	e.end.SHA256 = hex.EncodeToString(e.sum.Sum(nil))
	b, err := json.Marshal(map[string]end{"end": e.end})
	if err != nil {
		return "", nil, err
	}
	if err := e.put(b); err != nil {
		return "", nil, err
	}
	if err := e.zip.Close(); err != nil {
		return "", nil, err
	}
	return nameOf(e.head, e.end.First, e.end.Last), e.buf.Bytes(), nil
}

// Segment is one archived part of a session.
type Segment struct {
	Name        string
	Log         time.Time // when the log was created, in seconds
	First, Last uint64    // sequences of its messages
}

const suffix = ".jsonl.zst"

func dirOf(ref subject.Ref) string { return string(ref.Agent) + "/" + string(ref.Session) + "/" }

func nameOf(h Header, first, last uint64) string {
	return fmt.Sprintf("%s%012d-%020d-%020d%s", dirOf(h.Ref), h.Log.Unix(), first, last, suffix)
}

// parseName returns the segment of the session with the name, and false if no segment has it.
func parseName(ref subject.Ref, name string) (Segment, bool) {
	rest, is := strings.CutPrefix(name, dirOf(ref))
	base, zipped := strings.CutSuffix(rest, suffix)
	parts := strings.Split(base, "-")
	if !is || !zipped || len(parts) != 3 {
		return Segment{}, false
	}
	var n [3]uint64
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 63)
		if err != nil {
			return Segment{}, false
		}
		n[i] = v
	}
	return Segment{Name: name, Log: time.Unix(int64(n[0]), 0).UTC(), First: n[1], Last: n[2]}, true //nolint:gosec // 63 bits
}

// maxSegment is the most that a segment may hold once it is decompressed, in bytes: what [Writer] puts into one, and
// the largest message beyond that.
const maxSegment = segmentBytes + 64<<20

// decode reads a whole segment of the session.
func decode(name string, ref subject.Ref, body []byte) ([]bus.StoredMsg, end, error) {
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrDamaged, name, fmt.Sprintf(format, args...))
	}
	zip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxSegment))
	if err != nil {
		return nil, end{}, err
	}
	defer zip.Close()
	plain, err := zip.DecodeAll(body, nil)
	if err != nil {
		return nil, end{}, damaged("%v", err)
	}
	var out []bus.StoredMsg
	sum := sha256.New()
	for i := 0; len(plain) > 0; i++ {
		text, rest, whole := bytes.Cut(plain, []byte("\n"))
		if !whole {
			break
		}
		if i == 0 {
			var h Header
			if err := json.Unmarshal(text, &h); err != nil || h.Format != Format {
				return nil, end{}, damaged("its first line is no header of format %d", Format)
			}
			if h.Ref != ref {
				return nil, end{}, damaged("it is of the session %s, not %s", h.Ref, ref)
			}
		} else {
			var l line
			if err := json.Unmarshal(text, &l); err != nil {
				return nil, end{}, damaged("line %d: %v", i+1, err)
			}
			if l.End != nil {
				if got := hex.EncodeToString(sum.Sum(nil)); got != l.End.SHA256 || l.End.Messages != len(out) || len(rest) > 0 {
					return nil, end{}, damaged("it has %d messages and the sum %s, its last line says %d and %s",
						len(out), got, l.End.Messages, l.End.SHA256)
				}
				return out, *l.End, nil
			}
			m, err := l.message()
			if err != nil {
				return nil, end{}, damaged("line %d: %v", i+1, err)
			}
			out = append(out, m)
		}
		sum.Write(plain[:len(text)+1])
		plain = rest
	}
	return nil, end{}, damaged("its last line is missing")
}

func (l line) message() (bus.StoredMsg, error) {
	m := bus.StoredMsg{Seq: l.Sequence, Time: l.Time, Subject: l.Subject, Header: l.Header, Data: l.Data}
	if l.Bytes == nil {
		return m, nil
	}
	var err error
	m.Data, err = base64.StdEncoding.DecodeString(*l.Bytes)
	return m, err
}
