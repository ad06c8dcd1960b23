package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/subject"
)

// StoredMsg is a message of the log.
type StoredMsg struct {
	Seq     uint64    // its stream sequence
	Time    time.Time // when the server stored it, by its clock
	Subject string
	Header  nats.Header // the publisher's headers; nil if there are none, or none that can be parsed
	Data    []byte
}

const directGet = "$JS.API.DIRECT.GET." + StreamSessions

// LastCommit returns the session's last commit, or [ErrNotFound].
func (b *Bus) LastCommit(ctx context.Context, ref subject.Ref) (StoredMsg, error) {
	return b.get(ctx, getRequest{LastFor: ref.Commit()})
}

// LastCommitSeq returns the sequence of the session's last commit, 0 if there is none.
func (b *Bus) LastCommitSeq(ctx context.Context, ref subject.Ref) (uint64, error) {
	m, err := b.LastCommit(ctx, ref)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return m.Seq, err
}

// Commits yields the session's commits after a sequence, in order: all that were stored when
// it was called, and possibly some that are stored in the meantime. An error ends the
// iteration; the commits yielded before are valid.
func (b *Bus) Commits(ctx context.Context, ref subject.Ref, after uint64) iter.Seq2[StoredMsg, error] {
	return b.read(ctx, ref.Commit(), after)
}

// Messages yields the session's causes and commits after a sequence, in order,
// like [Bus.Commits].
func (b *Bus) Messages(ctx context.Context, ref subject.Ref, after uint64) iter.Seq2[StoredMsg, error] {
	return b.read(ctx, ref.All(), after)
}

// NextCause returns the session's first cause with after < sequence <= upTo, and false
// if there is none left.
//
// upTo is the sequence of a delivered cause of the session, so a cause exists unless
// it was deleted. A copy of the log that does not have it lags, and its answer is an
// error, [ErrUnavailable]: to trust that answer would acknowledge a cause that was
// never handled. A copy that has a later message has the whole log up to it, so any
// other answer is right, regardless of the copy that gave it and of the number of copies that
// this process assumes.
func (b *Bus) NextCause(ctx context.Context, ref subject.Ref, after, upTo uint64) (StoredMsg, bool, error) {
	if after >= upTo {
		return StoredMsg{}, false, nil
	}
	req := getRequest{Seq: after + 1, NextFor: ref.Causes()}
	m, err := b.get(ctx, req)
	if errors.Is(err, ErrNotFound) {
		m, err = b.nextAfterAll(ctx, req, upTo)
	}
	if errors.Is(err, ErrNotFound) || err == nil && m.Seq > upTo {
		return StoredMsg{}, false, nil
	}
	return m, err == nil, err
}

// nextAfterAll asks the leader for a message that a copy of the log did not have. Its
// ErrNotFound can be trusted.
func (b *Bus) nextAfterAll(ctx context.Context, req getRequest, upTo uint64) (StoredMsg, error) {
	gone, err := b.isGone(ctx, upTo)
	if err != nil {
		return StoredMsg{}, err
	}
	m, err := b.getFromLeader(ctx, req)
	if errors.Is(err, ErrNotFound) && !gone {
		return StoredMsg{}, Errorf(CodeUnavailable,
			"reading the log: the copy that answered does not have message %d yet; try again", upTo)
	}
	return m, err
}

// Message returns the message at a sequence, or [ErrNotFound].
func (b *Bus) Message(ctx context.Context, seq uint64) (StoredMsg, error) { return b.getAt(ctx, seq) }

func (b *Bus) getAt(ctx context.Context, seq uint64) (StoredMsg, error) {
	if seq == 0 {
		return StoredMsg{}, fmt.Errorf("reading message 0: %w", ErrNotFound)
	}
	return b.get(ctx, getRequest{Seq: seq})
}

// SessionInfo is one session in the log.
type SessionInfo struct {
	Ref     subject.Ref
	Commits uint64 // number of its commits in the log
}

// Sessions lists the sessions of an agent that have a commit; an empty agent
// means every agent. The order is not defined.
func (b *Bus) Sessions(ctx context.Context, agent subject.Agent) ([]SessionInfo, error) {
	filter := subject.AllCommits
	if agent != "" {
		if !subject.Valid(agent) {
			return nil, Errorf(CodeInvalidArgument, "listing sessions: agent %q is not a valid id", string(agent))
		}
		filter = subject.Ref{Agent: agent, Session: "*"}.Commit()
	}
	s, err := b.js.Stream(ctx, StreamSessions)
	if err != nil {
		return nil, transportError("listing sessions", err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, transportError("listing sessions", err)
	}
	list := make([]SessionInfo, 0, len(info.State.Subjects))
	for subj, n := range info.State.Subjects {
		if ref, err := subject.ParseCommit(subj); err == nil {
			list = append(list, SessionInfo{ref, n})
		}
	}
	return list, nil
}

type getRequest struct {
	Seq      uint64 `json:"seq,omitempty"`
	NextFor  string `json:"next_by_subj,omitempty"`
	LastFor  string `json:"last_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// get reads one message, from the leader if there are copies that may lag.
func (b *Bus) get(ctx context.Context, req getRequest) (StoredMsg, error) {
	single, err := b.copies.single(ctx)
	if err != nil {
		return StoredMsg{}, err
	}
	if !single {
		return b.getFromLeader(ctx, req)
	}
	subj, body := directGet, []byte(nil)
	if req.LastFor != "" {
		subj += "." + req.LastFor
	} else if body, err = json.Marshal(req); err != nil {
		return StoredMsg{}, fmt.Errorf("reading the log: %w", err)
	}
	m, err := b.data.ask(ctx, subj, body)
	if err != nil {
		return StoredMsg{}, transportError("reading the log", err)
	}
	stored, err := parseDirect(m)
	if errors.Is(err, errUnreadable) {
		return b.getFromLeader(ctx, req)
	}
	return stored.StoredMsg, err
}

// getFromLeader reads the log through its leader.
func (b *Bus) getFromLeader(ctx context.Context, req getRequest) (StoredMsg, error) {
	m, err := b.getStored(ctx, b.data, StreamSessions, req)
	if err != nil {
		return StoredMsg{}, fmt.Errorf("reading the log: %w", err)
	}
	return m, nil
}

// getStored reads from a stream's leader. The answer contains sequence, subject and time
// outside of the message, so they can be neither forged nor unreadable. It is slower.
func (b *Bus) getStored(ctx context.Context, l *link, stream string, req getRequest) (StoredMsg, error) {
	doing := "asking the leader of " + stream
	body, err := json.Marshal(req)
	if err != nil {
		return StoredMsg{}, fmt.Errorf("%s: %w", doing, err)
	}
	m, err := l.ask(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return StoredMsg{}, transportError(doing, err)
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
		return StoredMsg{}, transportError(doing, resp.Error)
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
