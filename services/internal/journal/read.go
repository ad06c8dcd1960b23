package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
)

// LastCommit returns the session's last commit, or [bus.ErrNotFound].
func (j *Journal) LastCommit(ctx context.Context, ref subject.Ref) (bus.StoredMsg, error) {
	m, err := j.get(ctx, bus.Query{LastFor: ref.Commit()})
	if err == nil && IsNoise(m) {
		return j.lastBefore(ctx, ref, m.Seq)
	}
	return m, err
}

// LastCommitSeq returns the sequence of the session's last commit, 0 if there is none.
func (j *Journal) LastCommitSeq(ctx context.Context, ref subject.Ref) (uint64, error) {
	m, err := j.LastCommit(ctx, ref)
	if errors.Is(err, bus.ErrNotFound) {
		return 0, nil
	}
	return m.Seq, err
}

// Commits yields the session's commits after a sequence, in order: all that were stored when
// it was called, and possibly some that are stored in the meantime. An error ends the
// iteration; the commits yielded before are valid.
func (j *Journal) Commits(ctx context.Context, ref subject.Ref, after uint64) iter.Seq2[bus.StoredMsg, error] {
	return j.read(ctx, ref.Commit(), after)
}

// AllCommits yields the commits of all sessions after a sequence, like [Journal.Commits].
func (j *Journal) AllCommits(ctx context.Context, after uint64) iter.Seq2[bus.StoredMsg, error] {
	return j.read(ctx, subject.AllCommits, after)
}

// Messages yields the session's causes and commits after a sequence, in order,
// like [Journal.Commits].
func (j *Journal) Messages(ctx context.Context, ref subject.Ref, after uint64) iter.Seq2[bus.StoredMsg, error] {
	return j.read(ctx, ref.All(), after)
}

// NextCause returns the session's first cause with after < sequence <= upTo, and false
// if there is none left.
//
// upTo is the sequence of a delivered cause of the session, so a cause exists unless
// it was deleted. A copy of the log that does not have it lags, and its answer is an
// error, [bus.ErrUnavailable]: to trust that answer would acknowledge a cause that was
// never handled. A copy that has a later message has the whole log up to it, so any
// other answer is right, regardless of the copy that gave it and of the number of copies that
// this process assumes.
func (j *Journal) NextCause(ctx context.Context, ref subject.Ref, after, upTo uint64) (bus.StoredMsg, bool, error) {
	if after >= upTo {
		return bus.StoredMsg{}, false, nil
	}
	req := bus.Query{Seq: after + 1, NextFor: ref.Causes()}
	m, err := j.get(ctx, req)
	if errors.Is(err, bus.ErrNotFound) {
		m, err = j.nextAfterAll(ctx, req, upTo)
	}
	if errors.Is(err, bus.ErrNotFound) || err == nil && m.Seq > upTo {
		return bus.StoredMsg{}, false, nil
	}
	return m, err == nil, err
}

// nextAfterAll asks the leader for a message that a copy of the log did not have. Its
// bus.ErrNotFound can be trusted.
func (j *Journal) nextAfterAll(ctx context.Context, req bus.Query, upTo uint64) (bus.StoredMsg, error) {
	gone, err := j.IsGone(ctx, upTo)
	if err != nil {
		return bus.StoredMsg{}, err
	}
	m, err := j.getFromLeader(ctx, req)
	if errors.Is(err, bus.ErrNotFound) && !gone {
		return bus.StoredMsg{}, bus.Errorf(bus.CodeUnavailable,
			"reading the log: the copy that answered does not have message %d yet; try again", upTo)
	}
	return m, err
}

// LastSequence returns the sequence of the log's last message.
func (j *Journal) LastSequence(ctx context.Context) (uint64, error) {
	s, err := j.JetStream().Stream(ctx, bus.StreamSessions)
	if err != nil {
		return 0, bus.TransportError("looking up the end of the log", err)
	}
	return s.CachedInfo().State.LastSeq, nil
}

// Message returns the message at a sequence, or [bus.ErrNotFound].
func (j *Journal) Message(ctx context.Context, seq uint64) (bus.StoredMsg, error) {
	return j.getAt(ctx, seq)
}

func (j *Journal) getAt(ctx context.Context, seq uint64) (bus.StoredMsg, error) {
	if seq == 0 {
		return bus.StoredMsg{}, fmt.Errorf("reading message 0: %w", bus.ErrNotFound)
	}
	return j.get(ctx, bus.Query{Seq: seq})
}

// LastMessage returns the session's last cause or commit, or [bus.ErrNotFound].
func (j *Journal) LastMessage(ctx context.Context, ref subject.Ref) (bus.StoredMsg, error) {
	return j.getFromLeader(ctx, bus.Query{LastFor: ref.All()})
}

// LastInputs returns the sequence of the last input of the session by each writer.
func (j *Journal) LastInputs(ctx context.Context, ref subject.Ref) (map[subject.Writer]uint64, error) {
	s, err := j.JetStream().Stream(ctx, bus.StreamSessions)
	if err != nil {
		return nil, bus.TransportError("listing the writers of "+ref.String(), err)
	}
	out := map[subject.Writer]uint64{}
	for _, filter := range ref.CausesOf(subject.Input) {
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return nil, bus.TransportError("listing the writers of "+ref.String(), err)
		}
		for subj := range info.State.Subjects {
			cause, err := subject.ParseCause(subj)
			if err != nil {
				continue
			}
			m, err := j.getFromLeader(ctx, bus.Query{LastFor: subj})
			if err != nil && !errors.Is(err, bus.ErrNotFound) {
				return nil, err
			}
			out[cause.Writer] = max(out[cause.Writer], m.Seq)
		}
	}
	return out, nil
}

// SessionInfo is one session in the log.
type SessionInfo struct {
	Ref     subject.Ref
	Commits uint64 // number of its commits in the log
}

// Sessions lists the sessions of an agent that have a commit; an empty agent
// means every agent. The order is not defined.
func (j *Journal) Sessions(ctx context.Context, agent subject.Agent) ([]SessionInfo, error) {
	filter := subject.AllCommits
	if agent != "" {
		if !subject.Valid(agent) {
			return nil, bus.Errorf(bus.CodeInvalidArgument, "listing sessions: agent %q is not a valid id", string(agent))
		}
		filter = subject.Ref{Agent: agent, Session: "*"}.Commit()
	}
	s, err := j.JetStream().Stream(ctx, bus.StreamSessions)
	if err != nil {
		return nil, bus.TransportError("listing sessions", err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, bus.TransportError("listing sessions", err)
	}
	list := make([]SessionInfo, 0, len(info.State.Subjects))
	for subj, n := range info.State.Subjects {
		if ref, err := subject.ParseCommit(subj); err == nil {
			list = append(list, SessionInfo{ref, n})
		}
	}
	return list, nil
}

// get reads one message, from the leader if there are copies that may lag.
func (j *Journal) get(ctx context.Context, req bus.Query) (bus.StoredMsg, error) {
	single, err := j.copies.single(ctx)
	if err != nil {
		return bus.StoredMsg{}, err
	}
	if !single {
		return j.getFromLeader(ctx, req)
	}
	subj, body := bus.DirectGet, []byte(nil)
	if req.LastFor != "" {
		subj += "." + req.LastFor
	} else if body, err = json.Marshal(req); err != nil {
		return bus.StoredMsg{}, fmt.Errorf("reading the log: %w", err)
	}
	m, err := j.data.Ask(ctx, subj, body)
	if err != nil {
		return bus.StoredMsg{}, bus.TransportError("reading the log", err)
	}
	stored, err := bus.ParseDirect(m)
	if errors.Is(err, bus.ErrUnreadable) {
		return j.getFromLeader(ctx, req)
	}
	return stored.StoredMsg, err
}

// getFromLeader reads the log through its leader.
func (j *Journal) getFromLeader(ctx context.Context, req bus.Query) (bus.StoredMsg, error) {
	return j.leaderOf(ctx, bus.StreamSessions, req)
}

// leaderOf reads a stream through its leader.
func (j *Journal) leaderOf(ctx context.Context, stream string, req bus.Query) (bus.StoredMsg, error) {
	m, err := j.data.Stored(ctx, stream, req)
	if err != nil {
		return bus.StoredMsg{}, fmt.Errorf("reading the log: %w", err)
	}
	return m, nil
}
