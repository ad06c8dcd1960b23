package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/subject"
)

// The streams and buckets.
const (
	StreamSessions  = "SESSIONS"  // the log: causes and commits
	StreamTimers    = "TIMERS"    // timers that are to fire, and fired ones until they are handled
	StreamDead      = "DEAD"      // copies of poisonous causes
	BucketClaims    = "claims"    // bodies of messages on their way
	BucketArtifacts = "artifacts" // large results that commits refer to
	BucketPlugins   = "plugins"   // the registry: manifests and leases
)

// DuplicateWindow is how long the log remembers message ids. A publisher that is
// not answered repeats itself within it.
const DuplicateWindow = 2 * time.Minute

// StreamsConfig says how the streams are kept. The zero value is one copy and
// the default limits.
type StreamsConfig struct {
	Replicas         int           // copies of each stream: 1, 3 or 5; default 1
	MaxBytes         int64         // of SESSIONS; default 8 GiB, -1 unlimited
	MaxDeadBytes     int64         // of DEAD; default 256 MiB
	MaxClaimBytes    int64         // of the bucket claims; default 4 GiB
	MaxArtifactBytes int64         // of the bucket artifacts; default 16 GiB
	DeadAge          time.Duration // how long DEAD keeps a message; default 30 days
	ClaimAge         time.Duration // how long a body on its way is kept; default 24 h
}

func (c StreamsConfig) withDefaults() StreamsConfig {
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.MaxBytes = cmp.Or(c.MaxBytes, 8<<30)
	c.MaxDeadBytes = cmp.Or(c.MaxDeadBytes, 256<<20)
	c.MaxClaimBytes = cmp.Or(c.MaxClaimBytes, 4<<30)
	c.MaxArtifactBytes = cmp.Or(c.MaxArtifactBytes, 16<<30)
	c.DeadAge = cmp.Or(c.DeadAge, 30*24*time.Hour)
	c.ClaimAge = cmp.Or(c.ClaimAge, 24*time.Hour)
	return c
}

// Validate reports a field that no server would take; the error names it.
func (c StreamsConfig) Validate() error {
	var errs []error
	if c.Replicas < 0 || c.Replicas > 5 || c.Replicas != 0 && c.Replicas%2 == 0 {
		errs = append(errs, fmt.Errorf("streams.replicas is %d, want 1, 3 or 5", c.Replicas))
	}
	if c.DeadAge < 0 || c.ClaimAge < 0 {
		errs = append(errs, errors.New("streams.dead_age and streams.claim_age must not be negative"))
	}
	return errors.Join(errs...)
}

func (c StreamsConfig) streams() []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		{
			Name: StreamSessions, Description: "causes and commits of every session: the log of record",
			Subjects: []string{subject.AllCauses, subject.AllCommits},
			Storage:  jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
			MaxBytes: c.MaxBytes, Replicas: c.Replicas, Duplicates: DuplicateWindow, AllowDirect: true,
		},
		{
			Name: StreamTimers, Description: "timers to fire, and fired ones until they are handled",
			Subjects: []string{subject.AllTimers, subject.AllFired},
			// A fired timer goes when it is acknowledged; one that waits has no consumer and
			// stays. The server takes no schedules with DiscardNew, and with DiscardOld a
			// limit would silently drop timers, so there is none: core alone may publish here.
			Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardOld,
			MaxBytes: -1, Replicas: c.Replicas, Duplicates: DuplicateWindow,
			AllowMsgSchedules: true, AllowRollup: true,
		},
		{
			Name: StreamDead, Description: "copies of causes that could not be handled",
			Subjects: []string{subject.AllDead},
			Storage:  jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
			MaxBytes: c.MaxDeadBytes, MaxAge: c.DeadAge, Replicas: c.Replicas, Duplicates: DuplicateWindow,
		},
		c.plugins(),
	}
}

// maxPluginBytes holds a thousand plugins, each with the largest manifest.
const maxPluginBytes = 256 << 20

// plugins is a bucket as the key-value API of any client makes it, so that people
// can look into it. It forgets nothing by itself: see schemas/adr/0007.
func (c StreamsConfig) plugins() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: bucketStream(BucketPlugins), Description: "the registry: manifests and leases of plugins",
		Subjects: []string{subject.BucketKey(BucketPlugins, ">")},
		Storage:  jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		MaxMsgsPerSubject: 1, MaxBytes: maxPluginBytes, Replicas: c.Replicas, Duplicates: DuplicateWindow,
		AllowDirect: true, AllowRollup: true, DenyDelete: true,
	}
}

// EnsurePlugins makes the bucket of plugins alone, like [Bus.EnsureStreams]: for
// when it was lost.
func (b *Bus) EnsurePlugins(ctx context.Context, c StreamsConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return b.ensureStream(ctx, c.withDefaults().plugins())
}

// EnsureStreams creates what is missing of the streams and buckets and verifies
// what is there. A difference that can be mended without losing anything is
// mended; any other is an error that names the stream and the field. Several
// processes may do it at once. While JetStream is not available it tries again,
// until ctx ends.
func (b *Bus) EnsureStreams(ctx context.Context, c StreamsConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, ackWait)
		err := b.ensureAll(attempt, c.withDefaults())
		cancel()
		if err == nil || !mayPass(err) {
			return err
		}
		b.log.Info("waiting for JetStream", "error", err)
		t := time.NewTimer(healPause)
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
	}
}

const errCodeNoPeers = 10005 // JSClusterNoPeersErrF: not all servers of the cluster are there yet

// mayPass reports whether JetStream may do tomorrow what it does not do today.
func mayPass(err error) bool {
	var e *jetstream.APIError
	if errors.As(err, &e) {
		return e.Code == 503 || e.ErrorCode == errCodeNoPeers
	}
	return Retryable(err)
}

func (b *Bus) ensureAll(ctx context.Context, c StreamsConfig) error {
	for _, want := range c.streams() {
		if err := b.ensureStream(ctx, want); err != nil {
			return err
		}
	}
	b.replicas.Store(int32(c.Replicas)) //nolint:gosec // at most 5
	// A bucket of bodies on their way that is full forgets the oldest; one of
	// results that commits refer to takes no more.
	err := b.ensureBucket(ctx, jetstream.ObjectStoreConfig{
		Bucket: BucketClaims, TTL: c.ClaimAge, MaxBytes: c.MaxClaimBytes, Replicas: c.Replicas, Storage: jetstream.FileStorage,
	}, jetstream.DiscardOld)
	if err != nil {
		return err
	}
	return b.ensureBucket(ctx, jetstream.ObjectStoreConfig{
		Bucket: BucketArtifacts, MaxBytes: c.MaxArtifactBytes, Replicas: c.Replicas, Storage: jetstream.FileStorage,
	}, jetstream.DiscardNew)
}

func (b *Bus) ensureStream(ctx context.Context, want jetstream.StreamConfig) error {
	for {
		s, err := b.js.Stream(ctx, want.Name)
		if err == nil {
			return b.verifyStream(ctx, s.CachedInfo().Config, want)
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("looking up stream %s: %w", want.Name, err)
		}
		_, err = b.js.CreateStream(ctx, want)
		if err == nil {
			b.log.Info("stream created", "stream", want.Name)
			return nil
		}
		// Another process was faster, perhaps with another configuration: look again.
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return creating("stream "+want.Name, want.MaxBytes, err)
		}
	}
}

// JSStorageResourcesExceededErr and JSAccountResourcesExceededErr of the server.
const errCodeNoStorage, errCodeAccountLimit = 10047, 10002

// creating says that something could not be made. A server sets aside what a stream may
// grow to when it makes it.
func creating(what string, size int64, err error) error {
	var e *jetstream.APIError
	if errors.As(err, &e) && (e.ErrorCode == errCodeNoStorage || e.ErrorCode == errCodeAccountLimit) {
		return fmt.Errorf("creating %s: JetStream has fewer than the %d MiB left that it may grow to: give the server or the account more file storage (jetstream.max_file_store; all streams and buckets need 30 GiB), or a larger disk: %w", what, size>>20, err)
	}
	return fmt.Errorf("creating %s: %w", what, err)
}

func (b *Bus) verifyStream(ctx context.Context, have, want jetstream.StreamConfig) error {
	if field, why := unsafeDifference(have, want); field != "" {
		return fmt.Errorf("stream %s: %s: %s; mend or remove the stream by hand, then start again", want.Name, field, why)
	}
	mended, changes := mend(have, want)
	if len(changes) == 0 {
		return nil
	}
	if _, err := b.js.UpdateStream(ctx, mended); err != nil {
		return fmt.Errorf("stream %s: changing %v: %w", want.Name, changes, err)
	}
	b.log.Info("stream changed", "stream", want.Name, "fields", changes)
	return nil
}

// unsafeDifference finds what an update cannot or must not change: the field and why.
func unsafeDifference(have, want jetstream.StreamConfig) (field, why string) {
	forge := "lets whoever may publish forge another message through a header"
	switch {
	case have.Storage != want.Storage:
		return "storage", fmt.Sprintf("is %s, want %s", have.Storage, want.Storage)
	case have.Retention != want.Retention:
		return "retention", fmt.Sprintf("is %s, want %s", have.Retention, want.Retention)
	case have.AllowMsgSchedules && !want.AllowMsgSchedules:
		return "allow_msg_schedules", "is on and " + forge
	case have.AllowMsgTTL:
		return "allow_msg_ttl", "is on and lets whoever may publish make the log forget"
	case have.AllowMsgCounter:
		return "allow_msg_counter", "is on and changes what is stored"
	case have.PersistMode != want.PersistMode:
		return "persist_mode", fmt.Sprintf("is %v: acknowledged messages could be lost", have.PersistMode)
	case have.Mirror != nil:
		return "mirror", "is set: the stream must be written by its publishers alone"
	case len(have.Sources) > 0:
		return "sources", "is set: the stream must be written by its publishers alone"
	case have.SubjectTransform != nil:
		return "subject_transform", "is set and " + forge
	case have.Sealed:
		return "sealed", "is on: nothing can be stored"
	}
	return "", ""
}

// mend returns have with every field that matters as wanted, and the fields' names.
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
	slices.Sort(mended.Subjects)
	subjects := slices.Sorted(slices.Values(want.Subjects))
	if !slices.Equal(mended.Subjects, subjects) {
		mended.Subjects = subjects
		changes = append(changes, "subjects")
	}
	if have.RePublish != nil {
		mended.RePublish = nil
		changes = append(changes, "republish")
	}
	return mended, changes
}

func set[T comparable](changes *[]string, field string, have *T, want T) {
	if *have != want {
		*have = want
		*changes = append(*changes, field)
	}
}

func (b *Bus) ensureBucket(ctx context.Context, want jetstream.ObjectStoreConfig, discard jetstream.DiscardPolicy) error {
	for {
		s, err := b.js.Stream(ctx, "OBJ_"+want.Bucket)
		if err == nil {
			return b.verifyBucket(ctx, s.CachedInfo().Config, want, discard)
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("looking up bucket %s: %w", want.Bucket, err)
		}
		_, err = b.js.CreateObjectStore(ctx, want)
		if err != nil && !errors.Is(err, jetstream.ErrBucketExists) && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return creating("bucket "+want.Bucket, want.MaxBytes, err)
		}
	}
}

func (b *Bus) verifyBucket(ctx context.Context, have jetstream.StreamConfig, want jetstream.ObjectStoreConfig, discard jetstream.DiscardPolicy) error {
	if have.Storage != want.Storage {
		return fmt.Errorf("bucket %s: storage is %s, want %s; remove the bucket by hand, then start again",
			want.Bucket, have.Storage, want.Storage)
	}
	var changes []string
	set(&changes, "max_bytes", &have.MaxBytes, want.MaxBytes)
	set(&changes, "max_age", &have.MaxAge, want.TTL)
	set(&changes, "num_replicas", &have.Replicas, want.Replicas)
	set(&changes, "discard", &have.Discard, discard)
	if len(changes) == 0 {
		return nil
	}
	if _, err := b.js.UpdateStream(ctx, have); err != nil {
		return fmt.Errorf("bucket %s: changing %v: %w", want.Bucket, changes, err)
	}
	return nil
}
