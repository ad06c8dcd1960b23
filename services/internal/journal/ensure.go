package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
)

// EnsurePlugins makes only the bucket of plugins, like [Journal.EnsureStreams].
func (j *Journal) EnsurePlugins(ctx context.Context, c StreamsConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return j.ensureStream(ctx, c.plugins())
}

// EnsureStreams creates missing streams and buckets and verifies the existing ones. A
// difference that can be repaired without loss is repaired; any other is an error that
// names the stream and the field. Copies are added, never removed, and no limit is set
// below what a stream holds: a configuration that asks for it is ignored with a
// warning. Several processes may call it at once. While JetStream is unavailable it
// tries again, until ctx ends.
func (j *Journal) EnsureStreams(ctx context.Context, c StreamsConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, ensureWait)
		err := j.ensureAll(attempt, c)
		cancel()
		if err == nil || !mayPass(err) {
			return err
		}
		j.log.Info("waiting for JetStream", "error", err)
		t := time.NewTimer(healPause)
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
	}
}

// ensureWait is how long one attempt to ensure all streams may take.
const ensureWait = 5 * time.Second

const errCodeNoPeers = 10005 // JSClusterNoPeersErrF: not all servers of the cluster are there yet

// mayPass reports whether the error may go away by itself.
func mayPass(err error) bool {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return e.Code == 503 || e.ErrorCode == errCodeNoPeers
	}
	return bus.Retryable(err)
}

func (j *Journal) ensureAll(ctx context.Context, c StreamsConfig) error {
	for _, want := range c.streams() {
		if err := j.ensureStream(ctx, want); err != nil {
			return err
		}
	}
	for _, want := range c.objectBuckets() {
		if err := j.ensureBucket(ctx, want); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) ensureStream(ctx context.Context, want wanted) error {
	for {
		doubts := j.copies.doubted()
		s, err := j.JetStream().Stream(ctx, want.Name)
		if err == nil {
			j.known.saw(s.CachedInfo())
			return j.verifyStream(ctx, s.CachedInfo(), want, doubts)
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("looking up stream %s: %w", want.Name, err)
		}
		want.Replicas = j.newReplicas(want.Name, want.given)
		s, err = j.JetStream().CreateStream(ctx, want.StreamConfig)
		if err == nil {
			j.known.saw(s.CachedInfo())
			j.log.Info("stream created", "stream", want.Name)
			return nil
		}
		// Another process was faster, perhaps with another configuration: look again.
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return creating("stream "+want.Name, want.MaxBytes, err)
		}
	}
}

// newReplicas is how many copies a new stream gets: as many as the log has, unless the
// configuration says otherwise. One that was lost gets no fewer than it had.
func (j *Journal) newReplicas(name string, given limits) int {
	return max(cmp.Or(given.replicas, j.copies.known()), j.known.copiesOf(name), 1)
}

// creating explains why something could not be created. A server reserves the maximum
// size of a stream when it creates it.
func creating(what string, size int64, err error) error {
	var e *jetstream.APIError
	if errors.As(err, &e) && (e.ErrorCode == bus.ErrCodeNoStorage || e.ErrorCode == bus.ErrCodeAccountLimit) {
		return fmt.Errorf("creating %s: JetStream has fewer than the %d MiB left that it may grow to: "+
			"give the server or the account more file storage (jetstream.max_file_store; "+
			"all streams and buckets need 30 GiB), or a larger disk: %w", what, size>>20, err)
	}
	return fmt.Errorf("creating %s: %w", what, err)
}

func (j *Journal) verifyStream(ctx context.Context, info *jetstream.StreamInfo, w wanted, doubts uint64) error {
	have, want := info.Config, j.settle(w, info)
	if want.Name == bus.StreamSessions {
		j.copies.learn(max(have.Replicas, want.Replicas), doubts)
	}
	if field, why := unsafeDifference(have, want); field != "" {
		return fmt.Errorf("stream %s: %s: %s; fix or remove the stream by hand, then start again",
			want.Name, field, why)
	}
	mended, changes := mend(have, want)
	if len(changes) == 0 {
		return nil
	}
	if _, err := j.JetStream().UpdateStream(ctx, mended); err != nil {
		return fmt.Errorf("stream %s: changing %v: %w", want.Name, changes, err)
	}
	j.log.Info("stream changed", "stream", want.Name, "fields", changes)
	return nil
}

// settle returns the wanted configuration of an existing stream. A start must not undo
// what another process or an operator has set: a limit that the configuration does not
// name is only ever raised, copies are never removed, and a smaller limit never
// deletes stored messages.
func (j *Journal) settle(w wanted, info *jetstream.StreamInfo) jetstream.StreamConfig {
	want, have := w.StreamConfig, info.Config
	ignore := func(field string, configured, is any) {
		j.log.Warn("ignoring a stream setting that would remove copies or messages; "+
			"change the stream by hand if that is intended",
			"stream", want.Name, "field", field, "configured", configured, "is", is)
	}
	if want.Replicas < have.Replicas {
		if w.given.replicas != 0 {
			ignore("num_replicas", want.Replicas, have.Replicas)
		}
		want.Replicas = have.Replicas
	}
	if unlimited := have.MaxBytes <= 0; want.MaxBytes > 0 && (unlimited || have.MaxBytes > want.MaxBytes) {
		switch {
		case w.given.maxBytes == 0:
			want.MaxBytes = have.MaxBytes
		case info.State.Bytes > uint64(want.MaxBytes):
			ignore("max_bytes", want.MaxBytes, have.MaxBytes)
			want.MaxBytes = have.MaxBytes
		}
	}
	if w.given.maxAge == 0 && want.MaxAge > 0 && (have.MaxAge == 0 || have.MaxAge > want.MaxAge) {
		want.MaxAge = have.MaxAge
	}
	return want
}

// unsafeDifference finds what an update cannot or must not change: the field and why.
func unsafeDifference(have, want jetstream.StreamConfig) (field, why string) {
	forge := "lets any publisher forge another message through a header"
	switch {
	case have.Storage != want.Storage:
		return "storage", fmt.Sprintf("is %s, want %s", have.Storage, want.Storage)
	case have.Retention != want.Retention:
		return "retention", fmt.Sprintf("is %s, want %s", have.Retention, want.Retention)
	case have.AllowMsgSchedules && !want.AllowMsgSchedules:
		return "allow_msg_schedules", "is on and " + forge
	case have.AllowMsgTTL:
		return "allow_msg_ttl", "is on and lets any publisher expire messages of the log"
	case have.AllowMsgCounter:
		return "allow_msg_counter", "is on and changes what is stored"
	case have.PersistMode != want.PersistMode:
		return "persist_mode", fmt.Sprintf("is %v: acknowledged messages could be lost", have.PersistMode)
	case have.Mirror != nil:
		return "mirror", "is set: only publishers may write to the stream"
	case len(have.Sources) > 0:
		return "sources", "is set: only publishers may write to the stream"
	case have.SubjectTransform != nil:
		return "subject_transform", "is set and " + forge
	case have.Sealed:
		return "sealed", "is on: nothing can be stored"
	}
	return "", ""
}

// mend returns have with every relevant field as in want, and the names of the changed
// fields.
func mend(have, want jetstream.StreamConfig) (mended jetstream.StreamConfig, changes []string) {
	mended = have
	set(&changes, "max_bytes", &mended.MaxBytes, want.MaxBytes)
	set(&changes, "max_age", &mended.MaxAge, want.MaxAge)
	set(&changes, "max_msgs", &mended.MaxMsgs, cmp.Or(want.MaxMsgs, -1))
	set(&changes, "max_msgs_per_subject", &mended.MaxMsgsPerSubject, cmp.Or(want.MaxMsgsPerSubject, -1))
	set(&changes, "max_msg_size", &mended.MaxMsgSize, cmp.Or(want.MaxMsgSize, -1))
	set(&changes, "discard", &mended.Discard, want.Discard)
	set(&changes, "discard_new_per_subject", &mended.DiscardNewPerSubject, want.DiscardNewPerSubject)
	set(&changes, "num_replicas", &mended.Replicas, want.Replicas)
	set(&changes, "no_ack", &mended.NoAck, false)
	set(&changes, "duplicate_window", &mended.Duplicates, want.Duplicates)
	set(&changes, "allow_direct", &mended.AllowDirect, want.AllowDirect)
	set(&changes, "allow_rollup_hdrs", &mended.AllowRollup, want.AllowRollup)
	set(&changes, "allow_atomic", &mended.AllowAtomicPublish, false)
	set(&changes, "allow_batched", &mended.AllowBatchPublish, false)
	set(&changes, "allow_msg_schedules", &mended.AllowMsgSchedules, want.AllowMsgSchedules)
	if want.DenyPurge { // the server does not let these be undone
		set(&changes, "deny_delete", &mended.DenyDelete, want.DenyDelete)
		set(&changes, "deny_purge", &mended.DenyPurge, true)
	}
	slices.Sort(mended.Subjects)
	subjects := slices.Sorted(slices.Values(want.Subjects))
	if !slices.Equal(mended.Subjects, subjects) {
		mended.Subjects = subjects
		changes = append(changes, "subjects")
	}
	if !sameRePublish(have.RePublish, want.RePublish) {
		mended.RePublish = want.RePublish
		changes = append(changes, "republish")
	}
	return mended, changes
}

func sameRePublish(a, b *jetstream.RePublish) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func set[T comparable](changes *[]string, field string, have *T, want T) {
	if *have != want {
		*have = want
		*changes = append(*changes, field)
	}
}

func (j *Journal) ensureBucket(ctx context.Context, want objectBucket) error {
	for {
		s, err := j.JetStream().Stream(ctx, bus.ObjectStream(want.Bucket))
		if err == nil {
			j.known.saw(s.CachedInfo())
			return j.verifyBucket(ctx, s.CachedInfo(), want)
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("looking up bucket %s: %w", want.Bucket, err)
		}
		want.Replicas = j.newReplicas(bus.ObjectStream(want.Bucket), want.given)
		_, err = j.JetStream().CreateObjectStore(ctx, want.ObjectStoreConfig)
		if err != nil && !errors.Is(err, jetstream.ErrBucketExists) && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return creating("bucket "+want.Bucket, want.MaxBytes, err)
		}
	}
}

func (j *Journal) verifyBucket(ctx context.Context, info *jetstream.StreamInfo, w objectBucket) error {
	have := info.Config
	if have.Storage != w.Storage {
		return fmt.Errorf("bucket %s: storage is %s, want %s; remove the bucket by hand, then start again",
			w.Bucket, have.Storage, w.Storage)
	}
	want := j.settle(wanted{
		jetstream.StreamConfig{Name: have.Name, MaxBytes: w.MaxBytes, MaxAge: w.TTL, Replicas: w.Replicas}, w.given,
	}, info)
	var changes []string
	set(&changes, "max_bytes", &have.MaxBytes, want.MaxBytes)
	set(&changes, "max_age", &have.MaxAge, want.MaxAge)
	set(&changes, "num_replicas", &have.Replicas, want.Replicas)
	set(&changes, "discard", &have.Discard, w.discard)
	for key, value := range w.Metadata {
		if have.Metadata[key] != value {
			have.Metadata = maps.Clone(have.Metadata)
			if have.Metadata == nil {
				have.Metadata = map[string]string{}
			}
			have.Metadata[key] = value
			changes = append(changes, key)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if _, err := j.JetStream().UpdateStream(ctx, have); err != nil {
		return fmt.Errorf("bucket %s: changing %v: %w", w.Bucket, changes, err)
	}
	return nil
}
