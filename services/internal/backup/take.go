package backup

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/clock"
	"skandha.dev/services/internal/journal"
)

// before are the streams that say what has been put into the log already: positions of listeners, and what is
// due. Of what they lack, the log recognizes a repetition; what they had too much would be missing in the log.
var before = []string{
	"KV_" + journal.BucketListeners, "KV_" + journal.BucketEmail, "KV_" + journal.BucketGateways, "KV_" + journal.BucketCron,
	"KV_" + journal.BucketSchedules, clock.Stream, journal.StreamTimers,
}

// immutable are the streams in which nothing replaces anything else, though their configuration allows it.
var immutable = []string{"OBJ_" + bus.BucketClaims}

const (
	rounds = 10 // at most, until none of before changes
	tries  = 8  // at most, for a stream in which messages are replaced
)

// ErrNoLog means that the bus has no log.
var ErrNoLog = errors.New("the bus has no stream " + bus.StreamSessions + ": no system has run on it")

// Progress is how far a backup or a restore is.
type Progress struct {
	What  string // a stream or directory
	Bytes int64  // of it so far
	Of    int64  // about how many it has; 0: unknown
	Done  bool
}

// Source is a directory to keep.
type Source struct{ Name, Path string }

// TakeConfig is the configuration of [Take].
type TakeConfig struct {
	Dirs     []Source
	Version  string // of the program
	Progress func(Progress)
}

type taker struct {
	TakeConfig
	b     *bus.Bus
	w     *writer
	taken map[string]int // how often a stream was
	m     Manifest
}

// Take writes an archive of everything that the bus keeps, and of the directories.
func Take(ctx context.Context, b *bus.Bus, to io.Writer, c TakeConfig) (Manifest, error) {
	ctx, cancel := connected(ctx, b)
	defer cancel()
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	now := time.Now().UTC().Truncate(time.Second)
	t := &taker{TakeConfig: c, b: b, w: &writer{tar.NewWriter(to), now}, taken: map[string]int{}, m: Manifest{
		Format: Format, Version: c.Version, Server: b.Conn().ConnectedServerVersion(), Account: b.Account(), Begun: now,
	}}
	all, err := t.list(ctx)
	if err != nil {
		return t.m, err
	}
	if err := t.streams(ctx, all); err != nil {
		return t.m, err
	}
	for _, d := range c.Dirs {
		if err := t.directory(ctx, d); err != nil {
			return t.m, fmt.Errorf("directory %s: %w", d.Name, err)
		}
	}
	t.m.Ended = time.Now().UTC().Truncate(time.Second)
	return t.m, t.w.end(t.m)
}

// list returns the streams to take.
func (t *taker) list(ctx context.Context) (names []string, err error) {
	infos, err := Streams(ctx, t.b)
	if err != nil {
		return nil, err
	}
	for _, i := range infos {
		switch name := i.Config.Name; {
		case i.Config.Storage != jetstream.FileStorage:
			t.m.Skipped = append(t.m.Skipped, name)
		case !streamName.MatchString(name):
			return nil, fmt.Errorf("stream %q: its name cannot be used in an archive", name)
		default:
			names = append(names, name)
		}
	}
	if !slices.Contains(names, bus.StreamSessions) {
		return nil, ErrNoLog
	}
	return names, nil
}

// Streams lists the streams of the account that belong to a system: all but those in which the server keeps
// the state of MQTT.
func Streams(ctx context.Context, b *bus.Bus) (infos []*jetstream.StreamInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	list := b.JetStream().ListStreams(ctx)
	for i := range list.Info() {
		if !strings.HasPrefix(i.Config.Name, "$MQTT") {
			infos = append(infos, i)
		}
	}
	if err := list.Err(); err != nil {
		return nil, bus.TransportError("listing the streams", err)
	}
	slices.SortFunc(infos, func(x, y *jetstream.StreamInfo) int { return cmp.Compare(x.Config.Name, y.Config.Name) })
	return infos, nil
}

// streams takes the positions, the log at a moment at which these are as taken, and the rest.
func (t *taker) streams(ctx context.Context, all []string) error {
	var first, later []string
	for _, name := range all {
		switch {
		case slices.Contains(before, name):
			first = append(first, name)
		case name != bus.StreamSessions:
			later = append(later, name)
		}
	}
	for round := 1; ; round++ {
		positions, err := t.each(ctx, first)
		if err != nil {
			return err
		}
		log, err := begin(ctx, t.b, bus.StreamSessions)
		if err != nil {
			return fmt.Errorf("stream %s: %w", bus.StreamSessions, err)
		}
		same, err := t.unchanged(ctx, positions)
		if err != nil {
			log.stop()
			return err
		}
		if !same && round < rounds {
			log.stop()
			continue
		}
		s, err := t.receive(ctx, bus.StreamSessions, log)
		if errors.Is(err, errEnded) && round < rounds {
			if err := rest(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", bus.StreamSessions, err)
		}
		t.m.Streams = slices.Concat(positions, []Stream{s})
		break
	}
	others, err := t.each(ctx, later)
	t.m.Streams = append(t.m.Streams, others...)
	return err
}

func (t *taker) each(ctx context.Context, names []string) (out []Stream, err error) {
	for _, name := range names {
		s, err := t.stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // it was removed since it was listed
		}
		if err != nil {
			return out, fmt.Errorf("stream %s: %w", name, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// unchanged reports whether the streams still are as they were taken.
func (t *taker) unchanged(ctx context.Context, taken []Stream) (bool, error) {
	for _, s := range taken {
		was, err := s.state()
		if err != nil {
			return false, err
		}
		is, err := t.info(ctx, s.Name)
		if err != nil {
			return false, err
		}
		if is.State.LastSeq != was.LastSeq || is.State.Msgs != was.Msgs {
			return false, nil
		}
	}
	return true, nil
}

func (t *taker) info(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	s, err := t.b.JetStream().Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("looking it up: %w", orGone(ctx, err))
	}
	return s.CachedInfo(), nil
}

// stream takes one stream. A message that is replaced before the server has read it would be
// missing in both of its versions: then the stream is taken again.
func (t *taker) stream(ctx context.Context, name string) (Stream, error) {
	for try := 1; try <= tries; try++ {
		snap, err := begin(ctx, t.b, name)
		if err != nil {
			return Stream{}, err
		}
		s, err := t.receive(ctx, name, snap)
		if errors.Is(err, errEnded) && try < tries {
			if err := rest(ctx); err != nil {
				return s, err
			}
			continue
		}
		if err != nil {
			return s, err
		}
		is, err := t.info(ctx, name)
		if err != nil {
			return s, err
		}
		was, err := s.state()
		if err != nil {
			return s, err
		}
		replaces := (is.Config.AllowRollup || is.Config.MaxMsgsPerSubject > 0) && !slices.Contains(immutable, name)
		if !replaces || was.Msgs+is.State.LastSeq-was.LastSeq == is.State.Msgs {
			return s, nil
		}
	}
	return Stream{}, fmt.Errorf("messages were replaced during each of %d attempts; "+
		"repeat it when the system is less busy, or stop its services first", tries)
}

// receive writes a snapshot to the archive.
func (t *taker) receive(ctx context.Context, name string, snap *snapshot) (s Stream, err error) {
	t.taken[name]++
	p := t.w.part(fmt.Sprintf("streams/%s/%d", name, t.taken[name]))
	s = Stream{Name: name, Config: snap.Config, State: snap.State}
	was, err := s.state()
	if err != nil {
		snap.stop()
		return s, err
	}
	size := int64(was.Bytes) //nolint:gosec // less than a disk has
	err = snap.copy(ctx, &reporting{Writer: p, at: Progress{What: name, Of: size}, report: t.Progress})
	if err == nil {
		err = p.Close()
	}
	if err != nil {
		return s, err
	}
	s.Part = p.Part
	t.Progress(Progress{What: name, Bytes: p.Bytes, Of: size, Done: true})
	return s, nil
}

// reporting reports progress of what is written.
type reporting struct {
	io.Writer
	at     Progress
	report func(Progress)
}

func (r *reporting) Write(b []byte) (int, error) {
	n, err := r.Writer.Write(b)
	r.at.Bytes += int64(n)
	r.report(r.at)
	return n, err
}
