package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
)

// NotEmptyError means that there is something where a restore would write.
type NotEmptyError struct{ What []string }

// Error implements error.
func (e *NotEmptyError) Error() string { return "not empty: " + strings.Join(e.What, ", ") }

// IncompleteError means that a restore failed after it had begun to write.
type IncompleteError struct {
	Done, All int // streams
	Err       error
}

// Error implements error.
func (e *IncompleteError) Error() string {
	return fmt.Sprintf("%v; %d of %d streams are restored, and nothing can be used yet; "+
		"remove the cause and restore again, replacing these", e.Err, e.Done, e.All)
}

// Unwrap returns the cause.
func (e *IncompleteError) Unwrap() error { return e.Err }

// Adapt is how a restored stream differs from the one in the archive.
type Adapt struct {
	Replicas int       // copies; 0: as many as it had
	At       time.Time // of the restore, kept in the stream's metadata; zero: not kept
}

// RestoreConfig is the configuration of [Archive.Restore].
type RestoreConfig struct {
	Dirs     []Source // where to put directories; one that is not named is left out
	Replace  bool     // remove what is there
	Replicas int      // copies of each stream; 0: as many as it had
	Progress func(Progress)
}

// Restore writes what the archive contains. Without Replace it refuses to write where anything is,
// with a [*NotEmptyError]. The services must not run meanwhile.
func (a *Archive) Restore(ctx context.Context, b *bus.Bus, c RestoreConfig) error {
	ctx, cancel := connected(ctx, b)
	defer cancel()
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	there, err := Streams(ctx, b)
	if err != nil {
		return err
	}
	dirs, err := a.targets(c)
	if err != nil {
		return err
	}
	if err := occupied(there, dirs); err != nil && !c.Replace {
		return err
	}
	defer dirs.clean()
	if err := dirs.extract(ctx, a, c.Progress); err != nil {
		return err
	}
	for _, s := range there {
		if err := remove(ctx, b, s.Config.Name); err != nil {
			return fmt.Errorf("stream %s: removing it: %w", s.Config.Name, err)
		}
	}
	at := Adapt{Replicas: c.Replicas, At: time.Now()}
	for i, s := range a.logLast() {
		if err := a.stream(ctx, b, s, at, c.Progress); err != nil {
			return &IncompleteError{i, len(a.Streams), fmt.Errorf("stream %s: %w", s.Name, explained(err))}
		}
	}
	if err := dirs.place(); err != nil {
		return &IncompleteError{len(a.Streams), len(a.Streams), err}
	}
	return nil
}

// logLast returns the streams, and the log at the end.
func (a *Archive) logLast() []Stream {
	all := slices.Clone(a.Streams)
	slices.SortStableFunc(all, func(x, y Stream) int {
		switch {
		case x.Name == bus.StreamSessions:
			return 1
		case y.Name == bus.StreamSessions:
			return -1
		}
		return 0
	})
	return all
}

// occupied returns a [*NotEmptyError] unless everything is empty.
func occupied(there []*jetstream.StreamInfo, dirs targets) error {
	var what []string
	for _, s := range there {
		if s.State.Msgs > 0 {
			what = append(what, fmt.Sprintf("stream %s (%d messages)", s.Config.Name, s.State.Msgs))
		}
	}
	if what = append(what, dirs.occupied()...); len(what) > 0 {
		return &NotEmptyError{what}
	}
	return nil
}

func remove(ctx context.Context, b *bus.Bus, name string) error {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	err := b.JetStream().DeleteStream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return orGone(ctx, err)
}

// stream restores one stream. One that is incomplete is removed.
func (a *Archive) stream(ctx context.Context, b *bus.Bus, s Stream, at Adapt, report func(Progress)) (err error) {
	want, err := s.state()
	if err != nil {
		return err
	}
	if s.Config, err = adapted(s, at); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if errors.Is(err, ErrGone) {
			return // the server has forgotten what it had received, or the next restore replaces it
		}
		if gone := remove(context.WithoutCancel(ctx), b, s.Name); gone != nil {
			err = fmt.Errorf("%w (and what was written of it could not be removed: %w)", err, gone)
		}
	}()
	st, err := upload(ctx, b, s, &progressReader{a.reader(s.Part), Progress{What: s.Name, Of: s.Bytes}, report})
	if err != nil {
		return err
	}
	// What has become due or too old since the backup may be gone already; the log loses nothing.
	same := st.LastSeq >= want.LastSeq
	if s.Name == bus.StreamSessions {
		same = st.LastSeq == want.LastSeq && st.FirstSeq == want.FirstSeq && st.Msgs == want.Msgs
	}
	if !same {
		return fmt.Errorf("the server restored %d messages, %d to %d, of %d, %d to %d",
			st.Msgs, st.FirstSeq, st.LastSeq, want.Msgs, want.FirstSeq, want.LastSeq)
	}
	if s.Name == bus.StreamSessions {
		if err := forgetCauses(ctx, b); err != nil {
			return err
		}
	}
	report(Progress{What: s.Name, Bytes: s.Bytes, Of: s.Bytes, Done: true})
	return nil
}

// forgetCauses removes the consumer of causes. A server reads what was acknowledged a moment after it has fixed
// the end of the log, so a cause may be acknowledged whose last commit is not in the snapshot: it would
// never complete. Cores make the consumer again, and acknowledge at once what is done.
func forgetCauses(ctx context.Context, b *bus.Bus) error {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	err := b.JetStream().DeleteConsumer(ctx, bus.StreamSessions, journal.DurableCauses)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("removing consumer %s: %w", journal.DurableCauses, orGone(ctx, err))
	}
	return nil
}

// announces reports whether all that a stream publishes by itself are the notices of its bucket.
func announces(s Stream) bool {
	var c struct {
		RePublish *jetstream.RePublish `json:"republish"`
	}
	bucket, is := strings.CutPrefix(s.Name, "KV_")
	return is && json.Unmarshal(s.Config, &c) == nil && c.RePublish != nil && *c.RePublish == *journal.Notices(bucket)
}

// adapted returns the configuration to restore a stream with.
func adapted(s Stream, at Adapt) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(s.Config))
	d.UseNumber()
	var c map[string]any
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("its configuration cannot be read: %w", err)
	}
	if c["name"] != s.Name {
		return nil, fmt.Errorf("its configuration is that of %q", c["name"])
	}
	for _, field := range []string{"mirror", "sources", "republish", "subject_transform"} {
		if c[field] != nil && (field != "republish" || !announces(s)) {
			return nil, fmt.Errorf("its configuration has %s, which a restored stream must not have", field)
		}
	}
	if at.Replicas != 0 {
		c["num_replicas"] = at.Replicas
	}
	if !at.At.IsZero() {
		meta, _ := c["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
		}
		meta[journal.MetaRestored] = at.At.UTC().Format(time.RFC3339Nano)
		c["metadata"] = meta
	}
	return json.Marshal(c)
}

// explained adds what to do to errors of the server.
func explained(err error) error {
	var e *jetstream.APIError
	if !errors.As(err, &e) {
		return err
	}
	switch text := strings.ToLower(e.Description); {
	case e.ErrorCode == bus.ErrCodeNoStorage, e.ErrorCode == bus.ErrCodeAccountLimit, strings.Contains(text, "resource"):
		return fmt.Errorf("%w; give the server more file storage (jetstream.max_file_store), or a larger disk", err)
	case strings.Contains(text, "replicas"):
		return fmt.Errorf("%w; name the number of copies that this server can keep with --replicas", err)
	}
	return err
}
