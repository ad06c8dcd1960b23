package clock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
)

// Stream holds the schedules of all owners.
const Stream = "CRON"

const (
	ackWait    = 30 * time.Second
	callWait   = 5 * time.Second
	fetchWait  = 5 * time.Second
	retryPause = 500 * time.Millisecond // after something failed
)

// Clock stores the schedules of one owner's entries and delivers what is due.
type Clock struct {
	owner    subject.Writer
	log      *slog.Logger
	js       jetstream.JetStream
	stream   jetstream.Stream
	consumer jetstream.Consumer
	replicas int
}

// Open creates the stream and the owner's consumer if they are missing.
func Open(ctx context.Context, b *journal.Journal, owner subject.Writer, log *slog.Logger) (*Clock, error) {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	c := &Clock{owner: owner, log: log, js: b.JetStream()}
	sessions, err := c.js.Stream(ctx, bus.StreamSessions)
	if err != nil {
		return nil, fmt.Errorf("looking up stream %s: %w", bus.StreamSessions, err)
	}
	c.replicas = sessions.CachedInfo().Config.Replicas
	if err := c.openStream(ctx); err != nil {
		return nil, err
	}
	if err := c.clear(ctx); err != nil {
		return nil, err
	}
	c.consumer, err = c.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: string(owner), FilterSubject: occurrences(owner),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: -1,
	})
	if err != nil {
		return nil, fmt.Errorf("creating consumer %s of stream %s: %w", owner, Stream, err)
	}
	return c, nil
}

func (c *Clock) openStream(ctx context.Context) (err error) {
	c.stream, err = c.js.Stream(ctx, Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		c.stream, err = c.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: Stream, Description: "schedules of entries, and due occurrences until they are handled",
			Subjects: []string{allSchedules, allOccurrences},
			// As stream TIMERS: handled messages are removed; a schedule has no consumer and stays.
			Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardOld,
			MaxBytes: -1, Replicas: c.replicas, AllowMsgSchedules: true, AllowRollup: true,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another replica was faster
			c.stream, err = c.js.Stream(ctx, Stream)
		}
	}
	if err != nil {
		return fmt.Errorf("opening stream %s: %w", Stream, err)
	}
	cfg := c.stream.CachedInfo().Config
	if !cfg.AllowMsgSchedules || cfg.Retention != jetstream.WorkQueuePolicy {
		return fmt.Errorf("stream %s is not a work queue with message schedules, "+
			"so Skandha did not create it; remove it by hand", Stream)
	}
	if cfg.Replicas < c.replicas {
		c.addCopies(ctx, cfg)
	}
	return nil
}

// addCopies gives the stream the copies that the log has got since. It works without them, too.
func (c *Clock) addCopies(ctx context.Context, cfg jetstream.StreamConfig) {
	cfg.Replicas = c.replicas
	s, err := c.js.UpdateStream(ctx, cfg)
	if err != nil {
		c.log.Warn("adding copies to the stream of schedules failed; the next start tries again", "stream", Stream, "error", err)
		return
	}
	c.stream = s
}

// clear removes the schedules of other owners: cron listeners had theirs here, before ADR 45.
func (c *Clock) clear(ctx context.Context) error {
	info, err := c.stream.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return fmt.Errorf("looking for old schedules in stream %s: %w", Stream, err)
	}
	for subj := range info.State.Subjects {
		if t := strings.Split(subj, "."); len(t) == 3 && t[1] == string(c.owner) {
			continue
		}
		if err := c.stream.Purge(ctx, jetstream.WithPurgeSubject(subj)); err != nil {
			return fmt.Errorf("removing the old schedule %s: %w", subj, err)
		}
		c.log.Info("removed an old schedule; its listener keeps its own time", "subject", subj)
	}
	return nil
}

// Lay stores when the entry is next due, unless exactly that is stored already. The body is
// delivered then. It replaces the entry's earlier schedule.
func (c *Clock) Lay(ctx context.Context, entry string, at time.Time, body []byte) error {
	subj := scheduleSubject(c.owner, entry)
	if m, err := c.stream.GetLastMsgForSubject(ctx, subj); err == nil && string(m.Data) == string(body) {
		return nil
	}
	_, err := c.js.PublishMsg(ctx, &nats.Msg{Subject: subj, Data: body, Header: nats.Header{
		jetstream.ScheduleHeader:       {"@at " + at.UTC().Format(time.RFC3339)},
		jetstream.ScheduleTargetHeader: {occurredSubject(c.owner, entry)},
		jetstream.ExpectedStreamHeader: {Stream},
	}})
	if err != nil {
		return fmt.Errorf("storing the schedule of entry %s: %w", entry, err)
	}
	return nil
}

// Laid reports whether a schedule of the entry is stored.
func (c *Clock) Laid(ctx context.Context, entry string) (bool, error) {
	_, err := c.stream.GetLastMsgForSubject(ctx, scheduleSubject(c.owner, entry))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the schedule of entry %s: %w", entry, err)
	}
	return true, nil
}

// Remove deletes an entry's schedule and what is due of it.
func (c *Clock) Remove(ctx context.Context, entry string) error {
	for _, subj := range []string{scheduleSubject(c.owner, entry), occurredSubject(c.owner, entry)} {
		if err := c.stream.Purge(ctx, jetstream.WithPurgeSubject(subj)); err != nil {
			return fmt.Errorf("removing entry %s: %w", entry, err)
		}
	}
	return nil
}

// Due is an entry that is due. Exactly one of Done, Drop and Later ends its delivery.
type Due struct {
	Entry string
	Body  []byte
	At    time.Time // when the server published it, by its clock

	msg jetstream.Msg
}

// Done acknowledges it.
func (d Due) Done() error { return d.msg.Ack() }

// Drop acknowledges it as invalid.
func (d Due) Drop() error { return d.msg.Term() }

// Later has it delivered again after a while.
func (d Due) Later(after time.Duration) error { return d.msg.NakWithDelay(after) }

// Alive tells the server that it is being worked on.
func (d Due) Alive() error { return d.msg.InProgress() }

// Take waits a few seconds for an entry that is due, and passes it to the handler. After an error of
// the handler it is delivered again. The error of Take means that the server cannot be asked.
func (c *Clock) Take(ctx context.Context, handle func(Due) error) error {
	fetch, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	batch, err := c.consumer.Fetch(1, jetstream.FetchContext(fetch))
	if err != nil {
		return fmt.Errorf("fetching due occurrences: %w", err)
	}
	for m := range batch.Messages() {
		c.hand(m, handle)
	}
	err = batch.Error()
	if ctx.Err() != nil || err == nil || nothing(err) {
		return nil
	}
	return fmt.Errorf("fetching due occurrences: %w", err)
}

func (c *Clock) hand(m jetstream.Msg, handle func(Due) error) {
	_, entry, err := parseOccurred(m.Subject())
	if err != nil {
		c.log.Warn("dropping a message that is not an occurrence", "subject", m.Subject(), "error", err)
		_ = m.Term() // if this fails it is dropped at its next delivery
		return
	}
	d := Due{Entry: entry, Body: m.Data(), msg: m}
	if meta, err := m.Metadata(); err == nil {
		d.At = meta.Timestamp
	}
	if err := handle(d); err != nil {
		c.log.Warn("due occurrence was not emitted; it will be redelivered", "subject", m.Subject(), "error", err)
		_ = d.Later(retryPause) // if this fails it is redelivered after ackWait
	}
}

// nothing reports whether the error only means that nothing was due.
func nothing(err error) bool {
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, jetstream.ErrNoMessages)
}
