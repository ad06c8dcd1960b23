package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// StoredMsg is a message of the log.
type StoredMsg struct {
	Seq     uint64    // its stream sequence
	Time    time.Time // when the server stored it, by its clock
	Subject string
	Header  nats.Header // the publisher's headers; nil if there are none, or none that can be parsed
	Data    []byte
}

// DirectGet is the subject of a [Query] that any copy of the log answers. [ParseDirect] reads
// the answers.
const DirectGet = directGet + StreamSessions

const directGet = "$JS.API.DIRECT.GET."

// Query asks for messages of a stream: the one with a sequence, the next ones on a subject
// from a sequence on, or the last one on a subject.
type Query struct {
	Seq      uint64 `json:"seq,omitempty"`
	NextFor  string `json:"next_by_subj,omitempty"`
	LastFor  string `json:"last_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// storedAt reads the message at a sequence of the log from any copy, which may lag.
func (b *Bus) storedAt(ctx context.Context, seq uint64) (StoredMsg, error) {
	q := Query{Seq: seq}
	body, err := json.Marshal(q)
	if err != nil {
		return StoredMsg{}, fmt.Errorf("reading the log: %w", err)
	}
	m, err := b.data.Ask(ctx, DirectGet, body)
	if err != nil {
		return StoredMsg{}, TransportError("reading the log", err)
	}
	d, err := ParseDirect(m)
	if errors.Is(err, ErrUnreadable) {
		return b.data.Stored(ctx, StreamSessions, q)
	}
	return d.StoredMsg, err
}

// Stored reads from a stream's leader. The answer contains sequence, subject and time
// outside of the message, so they can be neither forged nor unreadable. It is slower.
func (l *Link) Stored(ctx context.Context, stream string, req Query) (StoredMsg, error) {
	doing := "asking the leader of " + stream
	body, err := json.Marshal(req)
	if err != nil {
		return StoredMsg{}, fmt.Errorf("%s: %w", doing, err)
	}
	m, err := l.Ask(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return StoredMsg{}, TransportError(doing, err)
	}
	var resp struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &resp); err != nil {
		return StoredMsg{}, fmt.Errorf("%s: the answer: %w", doing, err)
	}
	switch {
	case resp.Error != nil && resp.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return StoredMsg{}, ErrNotFound
	case resp.Error != nil:
		return StoredMsg{}, TransportError(doing, resp.Error)
	case resp.Message == nil:
		return StoredMsg{}, errors.New(doing + ": the answer contains no message")
	}
	stored := StoredMsg{
		Seq: resp.Message.Seq, Time: resp.Message.Time, Subject: resp.Message.Subject, Data: resp.Message.Data,
	}
	if len(resp.Message.Header) > 0 {
		if h, err := nats.DecodeHeadersMsg(resp.Message.Header); err == nil {
			stored.Header = h
		}
	}
	return stored, nil
}

// LogInfo describes SESSIONS. Unlike the client's call it fails at once when the
// connection is lost. Either connection will do: after a loss one is back first.
func (b *Bus) LogInfo(ctx context.Context, question string) (*jetstream.StreamInfo, error) {
	const doing = "looking up stream " + StreamSessions
	asked := b.ctl
	if !asked.nc.IsConnected() {
		asked = b.data
	}
	m, err := asked.Ask(ctx, "$JS.API.STREAM.INFO."+StreamSessions, []byte(question))
	if err != nil {
		return nil, TransportError(doing, err)
	}
	var resp struct {
		Error *jetstream.APIError `json:"error"`
		jetstream.StreamInfo
	}
	if err := json.Unmarshal(m.Data, &resp); err != nil {
		return nil, fmt.Errorf("%s: the server's answer: %w", doing, err)
	}
	if resp.Error != nil {
		return nil, TransportError(doing, resp.Error)
	}
	return &resp.StreamInfo, nil
}

// IsGone reports whether a message that was stored is no longer in the log. A copy
// that does not have it may only lag, and so may a leader that was just elected or
// just replaced. A single answer says both how far its copy has come and what was
// deleted from it.
func (b *Bus) IsGone(ctx context.Context, seq uint64) (bool, error) {
	info, err := b.LogInfo(ctx, "")
	if err != nil {
		return false, err
	}
	if info.Config.Replicas <= 1 {
		return true, nil // there is no other copy
	}
	// What comes after it proves both. Nothing may: then the list of what was deleted does, which can be long.
	switch m, err := b.data.Stored(ctx, StreamSessions, Query{Seq: seq, NextFor: ">"}); {
	case err == nil:
		return m.Seq > seq, nil
	case !errors.Is(err, ErrNotFound):
		return false, err
	}
	if info, err = b.LogInfo(ctx, `{"deleted_details":true}`); err != nil {
		return false, err
	}
	s := info.State
	return s.LastSeq >= seq && (seq < s.FirstSeq || slices.Contains(s.Deleted, seq)), nil
}

var (
	// ErrUnreadable means that only the leader can return the message.
	ErrUnreadable = errors.New("message with unreadable headers")
	// ErrBatchEnd is the answer after the last message of a batch.
	ErrBatchEnd = errors.New("end of batch")
)

// DirectMsg is a message received by direct get.
type DirectMsg struct {
	StoredMsg
	Prev string // sequence of the message before it in the batch; "0" for the first
}

// ParseDirect parses a message received by direct get. The server appends its metadata to the
// publisher's headers, so only the last value of a header counts. A control message is one
// without a sequence: the publisher's headers may contain "Status: 404" or "Nats-Subject: …".
func ParseDirect(m *nats.Msg) (DirectMsg, error) {
	seq := lastValue(m.Header, jetstream.SequenceHeader)
	if seq == "" {
		return DirectMsg{}, parseStatus(m)
	}
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return DirectMsg{}, ErrUnreadable
	}
	at, err := time.Parse(time.RFC3339Nano, lastValue(m.Header, jetstream.TimeStampHeaer))
	if err != nil {
		return DirectMsg{}, ErrUnreadable
	}
	d := DirectMsg{
		StoredMsg: StoredMsg{Seq: n, Time: at, Subject: lastValue(m.Header, jetstream.SubjectHeader), Data: m.Data},
		Prev:      lastValue(m.Header, "Nats-Last-Sequence"),
	}
	for _, k := range serverHeaders {
		if v := m.Header[k]; len(v) > 1 {
			m.Header[k] = v[:len(v)-1] // the publisher's
		} else {
			delete(m.Header, k)
		}
	}
	if len(m.Header) > 0 {
		d.Header = m.Header
	}
	return d, nil
}

func parseStatus(m *nats.Msg) error {
	switch status := m.Header.Get("Status"); status {
	case "204":
		return ErrBatchEnd
	case statusDenied:
		return fmt.Errorf("reading the stream: %w", deniedError(m))
	case "404":
		return fmt.Errorf("reading the stream: %w", ErrNotFound)
	case "503":
		return TransportError("reading the stream", nats.ErrNoResponders)
	case "":
		return ErrUnreadable
	default:
		return fmt.Errorf("reading the stream: the server reported %s %s", status, m.Header.Get("Description"))
	}
}

// serverHeaders are what direct get appends.
var serverHeaders = [...]string{
	jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer,
	"Nats-Num-Pending", "Nats-Last-Sequence",
}

func lastValue(h nats.Header, key string) string {
	if v := h[key]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}
