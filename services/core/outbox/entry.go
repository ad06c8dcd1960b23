package outbox

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
)

// entry is a message in the bucket.
type entry struct {
	subject.Ref
	Via      subject.Writer      `json:"via"` // the listener that delivers it
	Delivery tool.Delivery       `json:"delivery"`
	Key      string              `json:"key"` // towards the other system; the same in all attempts
	State    coreapi.OutboxState `json:"state"`
	Call     string              `json:"call,omitempty"`     // while it is sent: the id of the call
	NotAfter time.Time           `json:"not_after,omitzero"` // while it is sent: when the call has certainly ended
	Attempts int                 `json:"attempts,omitempty"` // that have failed
	Next     time.Time           `json:"next,omitzero"`      // while it waits: not before
	Error    string              `json:"error,omitempty"`    // of the last attempt
	Delay    time.Time           `json:"delay,omitzero"`     // not before, and it holds nothing up
	Stored   time.Time           `json:"stored"`
	// Omitted says that the text is only in the log, because too much waits for the listener.
	Omitted bool `json:"omitted,omitempty"`

	id       string
	revision uint64
}

// dest is a destination: entries for the same one are delivered in order.
type dest string

// size is about how many bytes the entry takes in the bucket.
func (e *entry) size() int64 {
	n := len(e.Delivery.Text) + len(e.Error) + len(e.id) + 512
	if e.Delivery.Approval != nil {
		n += len(e.Delivery.Approval.Args)
	}
	return int64(n)
}

func (e *entry) dest() dest {
	d, _ := splitID(e.id)
	return d
}

// newID returns the id of the n-th message of a commit. Ids of a destination are in the order of the
// log.
func newID(via subject.Writer, to string, commit uint64, n int) string {
	sum := sha256.Sum256([]byte(to))
	return fmt.Sprintf("%s.%s.%020d-%03d", via, hex.EncodeToString(sum[:8]), commit, n)
}

// splitID returns the destination, and the position in it.
func splitID(id string) (dest, string) {
	i := strings.LastIndexByte(id, '.')
	if i < 0 {
		return "", id
	}
	return dest(id[:i]), id[i+1:]
}

// commitOf returns the sequence of the commit that an entry is from; 0 if the key is no entry's.
func commitOf(id string) uint64 {
	_, at := splitID(id)
	commit, _, _ := strings.Cut(at, "-")
	n, err := strconv.ParseUint(commit, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func decode(e journal.Entry) (*entry, error) {
	out := &entry{id: e.Key, revision: e.Revision}
	if err := json.Unmarshal(e.Value, out); err != nil {
		return nil, fmt.Errorf("entry %s of the outbox: %w", e.Key, err)
	}
	return out, nil
}

func nonce() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}
