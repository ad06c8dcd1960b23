package backup_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/backup"
	"skandha.dev/services/internal/clock"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

var ref = subject.Ref{Agent: "main", Session: "s1"}

// lived returns a bus that has a log, a consumer that has acknowledged some of it, a timer, entries that were
// replaced, and an artifact.
func lived(t *testing.T) *journal.Journal {
	t.Helper()
	ctx := natstest.Context(t)
	b := natstest.Connect(t, natstest.Start(t, natstest.WithSync("relaxed")))
	natstest.EnsureStreams(t, b)
	must(t, b.EnsureOutgoing(ctx))
	for i := range 10 {
		_, err := b.PublishCause(ctx, ref, subject.Input, "ada", "", fmt.Appendf(nil, `{"text": "input %d"}`, i))
		must(t, err)
	}
	must(t, b.ScheduleTimer(ctx, ref, "expiry", time.Now().Add(time.Hour)))
	bucket, err := b.JetStream().KeyValue(ctx, journal.BucketMemories)
	must(t, err)
	for i := range 5 {
		_, err := bucket.Put(ctx, "main.m1", fmt.Appendf(nil, "version %d", i))
		must(t, err)
	}
	must(t, b.PutArtifact(ctx, "main/s1/uploads/a.txt", bytes.Repeat([]byte("artifact "), 100_000)))
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func empty(t *testing.T) *journal.Journal {
	t.Helper()
	return emptied(t, natstest.Connect(t, natstest.Start(t, natstest.WithSync("relaxed"))))
}

func emptied(t *testing.T, b *journal.Journal) *journal.Journal {
	t.Helper()
	there, err := backup.Streams(natstest.Context(t), b.Bus)
	must(t, err)
	for _, s := range there {
		must(t, b.JetStream().DeleteStream(natstest.Context(t), s.Config.Name))
	}
	return b
}

func take(t *testing.T, b *journal.Journal, dirs ...backup.Source) []byte {
	t.Helper()
	var to bytes.Buffer
	_, err := backup.Take(natstest.Context(t), b.Bus, &to, backup.TakeConfig{Version: "v1", Dirs: dirs})
	must(t, err)
	return to.Bytes()
}

func open(t *testing.T, archive []byte) *backup.Archive {
	t.Helper()
	a, err := backup.Open(bytes.NewReader(archive), int64(len(archive)))
	must(t, err)
	return a
}

// contents returns every message of every stream, with its sequence and time.
func contents(t *testing.T, b *journal.Journal) map[string][]string {
	t.Helper()
	ctx := natstest.Context(t)
	out := map[string][]string{}
	infos, err := backup.Streams(ctx, b.Bus)
	must(t, err)
	for _, i := range infos {
		s, err := b.JetStream().Stream(ctx, i.Config.Name)
		must(t, err)
		list := []string{fmt.Sprint("last ", i.State.LastSeq)}
		for seq := max(i.State.FirstSeq, 1); seq <= i.State.LastSeq; seq++ {
			m, err := s.GetMsg(ctx, seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			must(t, err)
			list = append(list, fmt.Sprintf("%d %s %s %v %x", seq, m.Time, m.Subject, m.Header, sha256.Sum256(m.Data)))
		}
		out[i.Config.Name] = list
	}
	return out
}

func TestARestoredSystemHasEveryMessageWithItsSequence(t *testing.T) {
	b := lived(t)
	archive := take(t, b)
	other := empty(t)
	must(t, open(t, archive).Restore(natstest.Context(t), other.Bus, backup.RestoreConfig{}))
	before, after := contents(t, b), contents(t, other)
	if len(before) < 10 {
		t.Errorf("only %d streams were there", len(before))
	}
	for name, want := range before {
		if !slices.Equal(after[name], want) {
			t.Errorf("stream %s is\n%s\nwant\n%s", name, strings.Join(after[name], "\n"), strings.Join(want, "\n"))
		}
	}
	must(t, other.EnsureStreams(natstest.Context(t), journal.StreamsConfig{})) // with nothing to complain about
	if has, err := other.HasOutgoing(natstest.Context(t)); err != nil || !has {
		t.Errorf("the durable consumer is restored: %v, %v", has, err)
	}
	data, err := other.GetArtifact(natstest.Context(t), "main/s1/uploads/a.txt")
	if err != nil || len(data) != 900_000 {
		t.Errorf("the artifact has %d bytes: %v", len(data), err)
	}
}

func TestAConsumerGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	b, ctx := lived(t), natstest.Context(t)
	config := jetstream.ConsumerConfig{Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second}
	c, err := b.JetStream().CreateConsumer(ctx, bus.StreamSessions, config)
	must(t, err)
	for seq := range 4 {
		m, err := c.Next()
		must(t, err)
		if seq != 2 { // the third is delivered, and not acknowledged
			must(t, m.DoubleAck(ctx))
		}
	}
	archive := take(t, b)
	other := empty(t)
	must(t, open(t, archive).Restore(ctx, other.Bus, backup.RestoreConfig{}))
	c, err = other.JetStream().Consumer(ctx, bus.StreamSessions, "reader")
	must(t, err)
	got := map[uint64]bool{}
	for range 7 {
		m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
		must(t, err)
		meta, err := m.Metadata()
		must(t, err)
		got[meta.Sequence.Stream] = true
		must(t, m.DoubleAck(ctx))
	}
	for _, seq := range []uint64{3, 5, 6, 7, 8, 9, 10} {
		if !got[seq] {
			t.Errorf("message %d was not acknowledged and is not delivered again; got %v", seq, got)
		}
	}
}

// What was acknowledged a moment too late for the snapshot of the log must not be lost.
func TestCoresAreGivenEveryCauseAgain(t *testing.T) {
	t.Parallel()
	b, ctx := lived(t), natstest.Context(t)
	deliveries := make(chan journal.Delivery, 20)
	consume := func(b *journal.Journal) (stop func()) {
		c, err := b.ConsumeCauses(ctx, journal.ConsumeConfig{}, func(d journal.Delivery) {
			if err := d.Ack(); err != nil {
				t.Error(err)
			}
			deliveries <- d
		})
		must(t, err)
		return c.Stop
	}
	stop := consume(b)
	for range 10 {
		<-deliveries
	}
	stop()
	other := empty(t)
	must(t, open(t, take(t, b)).Restore(ctx, other.Bus, backup.RestoreConfig{}))
	defer consume(other)()
	for seq := uint64(1); seq <= 10; seq++ {
		select {
		case d := <-deliveries:
			if d.Seq != seq {
				t.Errorf("cause %d is delivered, want %d", d.Seq, seq)
			}
		case <-ctx.Done():
			t.Fatalf("cause %d is not delivered", seq)
		}
	}
}

func TestATimerFiresInTheRestoredSystem(t *testing.T) {
	t.Parallel()
	b, ctx := lived(t), natstest.Context(t)
	soon := time.Now().Add(2 * time.Second)
	must(t, b.ScheduleTimer(ctx, ref, "soon", soon))
	cron, err := clock.Open(ctx, b, "nightly", natstest.Logger(t))
	must(t, err)
	must(t, cron.Lay(ctx, "report", soon, []byte("due")))
	archive := take(t, b)
	other := empty(t)
	must(t, open(t, archive).Restore(ctx, other.Bus, backup.RestoreConfig{}))
	fired := make(chan string, 10)
	c, err := other.ConsumeFired(ctx, nil, func(_ context.Context, _ subject.Ref, id string) error {
		fired <- id
		return nil
	})
	must(t, err)
	defer c.Stop()
	select {
	case id := <-fired:
		if id != "soon" || time.Now().Before(soon) {
			t.Errorf("timer %s has fired, %s after its time", id, time.Since(soon))
		}
	case <-ctx.Done():
		t.Error("the timer has not fired")
	}
	cron, err = clock.Open(ctx, other, "nightly", natstest.Logger(t))
	must(t, err)
	for due := ""; due == "" && ctx.Err() == nil; {
		must(t, cron.Take(ctx, func(d clock.Due) error {
			due = d.Entry
			return d.Done()
		}))
	}
	must(t, ctx.Err())
}

func TestABackupBesideWritersMissesNoKey(t *testing.T) {
	b, ctx := lived(t), natstest.Context(t)
	stop, done := make(chan struct{}), make(chan struct{})
	const keys = 200
	bucket, err := b.JetStream().KeyValue(ctx, journal.BucketListeners)
	must(t, err)
	for i := range keys {
		_, err := bucket.Put(ctx, fmt.Sprint("k", i), []byte("first"))
		must(t, err)
	}
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := bucket.Put(ctx, fmt.Sprint("k", i%keys), []byte("later")); err != nil {
				return
			}
			if i%50 == 49 { // a writer that never rests would let no attempt be whole
				<-time.After(100 * time.Millisecond)
			}
		}
	}()
	archive := take(t, b)
	close(stop)
	<-done
	other := empty(t)
	must(t, open(t, archive).Restore(ctx, other.Bus, backup.RestoreConfig{}))
	for i := range keys {
		if _, err := other.Bucket(journal.BucketListeners).Get(ctx, fmt.Sprint("k", i)); err != nil {
			t.Errorf("a key that was replaced during the backup is lost: %v", err)
		}
	}
}

func TestARestoreWritesOnlyIntoAnEmptySystem(t *testing.T) {
	b, ctx := lived(t), natstest.Context(t)
	a := open(t, take(t, b))
	other := lived(t)
	before := contents(t, other)
	var full *backup.NotEmptyError
	if err := a.Restore(ctx, other.Bus, backup.RestoreConfig{}); !errors.As(err, &full) ||
		!strings.Contains(err.Error(), "stream SESSIONS (10 messages)") {
		t.Errorf("a restore over a log is refused with %v", err)
	}
	if after := contents(t, other); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("the refused restore has changed something")
	}
	must(t, a.Restore(ctx, other.Bus, backup.RestoreConfig{Replace: true}))
	if got, want := contents(t, other), contents(t, b); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a restore with Replace it is\n%v, want\n%v", got, want)
	}
}

func TestDirectoriesAreKept(t *testing.T) {
	b, ctx, from := lived(t), natstest.Context(t), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(from, "sub/empty"), 0o700))
	must(t, os.WriteFile(filepath.Join(from, "sub/a.sh"), []byte("#!/bin/sh\n"), 0o700))
	must(t, os.WriteFile(filepath.Join(from, "big"), bytes.Repeat([]byte("x"), 700_000), 0o640))
	must(t, os.Symlink("/etc/passwd", filepath.Join(from, "link")))
	archive := take(t, b, backup.Source{Name: "workspace", Path: from},
		backup.Source{Name: "skills", Path: filepath.Join(from, "absent")})
	a := open(t, archive)
	if len(a.Dirs) != 1 || a.Dirs[0].Files != 2 || a.Dirs[0].Skipped != 1 {
		t.Errorf("the directories are %+v", a.Dirs)
	}
	to := filepath.Join(t.TempDir(), "workspace")
	must(t, a.Restore(ctx, empty(t).Bus, backup.RestoreConfig{Dirs: []backup.Source{{Name: "workspace", Path: to}}}))
	if got, err := os.ReadFile(filepath.Join(to, "big")); err != nil || len(got) != 700_000 {
		t.Errorf("a file has %d bytes: %v", len(got), err)
	}
	if i, err := os.Stat(filepath.Join(to, "sub/a.sh")); err != nil || i.Mode().Perm() != 0o700 {
		t.Errorf("a program is %v, %v", i, err)
	}
	if i, err := os.Stat(filepath.Join(to, "sub/empty")); err != nil || !i.IsDir() {
		t.Errorf("an empty directory is %v, %v", i, err)
	}
	left, err := os.ReadDir(to)
	if err != nil || len(left) != 2 {
		t.Errorf("in the directory are %v, %v", left, err)
	}
	var full *backup.NotEmptyError
	err = a.Restore(ctx, empty(t).Bus, backup.RestoreConfig{Dirs: []backup.Source{{Name: "workspace", Path: to}}})
	if !errors.As(err, &full) {
		t.Errorf("a restore over files is refused with %v", err)
	}
}

// full is a disk that is full, or a pipe that is broken, after some bytes.
type full struct{ left int }

var errFull = errors.New("no space left on device")

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestABackupThatCannotBeWritten(t *testing.T) {
	b := lived(t)
	for _, room := range []int{0, 700, 20_000} {
		_, err := backup.Take(natstest.Context(t), b.Bus, &full{room}, backup.TakeConfig{})
		if !errors.Is(err, errFull) {
			t.Errorf("with room for %d bytes it fails with %v", room, err)
		}
	}
	_ = take(t, b) // nothing is in the way of another one
}

func TestABusWithoutALogHasNothingToTake(t *testing.T) {
	_, err := backup.Take(natstest.Context(t), empty(t).Bus, io.Discard, backup.TakeConfig{})
	if !errors.Is(err, backup.ErrNoLog) {
		t.Errorf("it fails with %v", err)
	}
}

// When the server goes away, both end soon, and a restore can be repeated.
func TestTheServerGoesAway(t *testing.T) {
	t.Parallel()
	archive := take(t, lived(t))
	p := natstest.StartProcess(t, t.TempDir(), natstest.FreePort(t))
	b := emptied(t, natstest.ConnectURL(t, p.URL()))
	a, ctx := open(t, archive), natstest.Context(t)
	kill := func(at backup.Progress) {
		if at.What == "OBJ_"+journal.BucketArtifacts && !at.Done {
			p.Kill()
		}
	}
	var incomplete *backup.IncompleteError
	if err := a.Restore(ctx, b.Bus, backup.RestoreConfig{Progress: kill}); !errors.As(err, &incomplete) ||
		!errors.Is(err, backup.ErrGone) || !strings.Contains(err.Error(), "OBJ_artifacts") {
		t.Errorf("a restore ends with %v", err)
	}
	p.Restart()
	natstest.Eventually(t, "the bus is back", b.Connected)
	must(t, a.Restore(ctx, b.Bus, backup.RestoreConfig{Replace: true}))
	if _, err := backup.Take(ctx, b.Bus, io.Discard, backup.TakeConfig{Progress: kill}); !errors.Is(err, backup.ErrGone) {
		t.Errorf("a backup ends with %v", err)
	}
}

func TestCopiesThatAServerCannotKeep(t *testing.T) {
	err := open(t, take(t, lived(t))).Restore(natstest.Context(t), empty(t).Bus, backup.RestoreConfig{Replicas: 3})
	if err == nil || !strings.Contains(err.Error(), "--replicas") {
		t.Errorf("it fails with %v", err)
	}
}

func TestARestoreIntoAClusterMakesCopies(t *testing.T) {
	t.Parallel()
	b := lived(t)
	a := open(t, take(t, b))
	c := natstest.StartCluster(t)
	other := emptied(t, natstest.ConnectURL(t, c.URL()))
	must(t, a.Restore(natstest.Context(t), other.Bus, backup.RestoreConfig{Replicas: 3}))
	s, err := other.JetStream().Stream(natstest.Context(t), bus.StreamSessions)
	must(t, err)
	if i := s.CachedInfo(); i.Config.Replicas != 3 || i.State.Msgs != 10 || i.State.LastSeq != 10 {
		t.Errorf("the log has %d copies of %+v", i.Config.Replicas, i.State)
	}
	again := open(t, take(t, other)) // of a cluster
	must(t, again.Restore(natstest.Context(t), empty(t).Bus, backup.RestoreConfig{Replicas: 1}))
}
