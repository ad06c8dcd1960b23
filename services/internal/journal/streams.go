package journal

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
)

// The streams and buckets, beside [bus.StreamSessions] and [bus.BucketClaims].
const (
	StreamTimers    = "TIMERS"    // timers that are to fire, and fired ones until they are handled
	StreamDead      = "DEAD"      // copies of poisonous causes
	StreamAudit     = "AUDIT"     // who did what, as a chain
	BucketArtifacts = "artifacts" // large results that commits refer to, and files of tools and people
	BucketPlugins   = "plugins"   // the registry: manifests and leases
	BucketBudgets   = "budgets"   // what the providers have spent, by period
	BucketMemories  = "memories"  // what agents remember, by agent and id
	BucketListeners = "listeners" // what listeners remember of their sources, and how they are
	BucketEmail     = "email"     // how far email listeners have read, by listener
	BucketEffects   = "effects"   // how far calls with a probe got, by key
	BucketGateways  = "gateways"  // what chat gateways remember: requests for approval, and positions
	BucketOutbox    = "outbox"    // messages to people that are not delivered yet, by destination
	BucketSchedules = "schedules" // what agents have scheduled, by agent, session and name
	BucketFiles     = "files"     // copies of the workspaces of sandboxes, by agent and session
	BucketCron      = "cron"      // the last occurrence of each entry of cron listeners
	// who from outside may connect to the bus, by name
	BucketIdentities = "identities"
)

// MetaRestored is the key of a stream's metadata that says when the stream was restored from a backup: a time
// as of RFC 3339. What is derived from the stream as it was before is then of another one.
const MetaRestored = "skandha.restored"

// StreamsConfig configures the streams. A zero field keeps the existing value, unless
// that is less than the default; new streams get the default.
type StreamsConfig struct {
	Replicas         int           `default:"1"`       // copies of each stream: 1, 3 or 5; never lowered
	MaxBytes         int64         `default:"8 GiB"`   // of SESSIONS; -1 unlimited
	MaxDeadBytes     int64         `default:"256 MiB"` // of DEAD
	MaxClaimBytes    int64         `default:"4 GiB"`   // of the bucket claims
	MaxArtifactBytes int64         `default:"12 GiB"`  // of the bucket artifacts
	MaxFilesBytes    int64         `default:"4 GiB"`   // of the bucket files
	MaxMemoryBytes   int64         `default:"1 GiB"`   // of the bucket memories
	DeadAge          time.Duration `default:"720h"`    // how long DEAD keeps a message
	ClaimAge         time.Duration `default:"24h"`     // how long a body on its way is kept
	MaxAuditBytes    int64         `default:"48 MiB"`  // of AUDIT
	AuditAge         time.Duration // how long AUDIT keeps an entry; 0: until it is full

	// What the bucket artifacts keeps; see [ArtifactLimits].
	MaxSessionArtifactBytes int64
	MaxAgentArtifactBytes   int64
	ArtifactAge             *time.Duration
}

func (c StreamsConfig) withDefaults() StreamsConfig { return bounds.Filled(c) }

// Validate reports every field with a value that no server accepts; each error names
// its field.
func (c StreamsConfig) Validate() error {
	var errs []error
	if c.Replicas < 0 || c.Replicas > 5 || c.Replicas != 0 && c.Replicas%2 == 0 {
		errs = append(errs, fmt.Errorf("streams.replicas is %d, want 1, 3 or 5", c.Replicas))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"max_bytes", c.MaxBytes},
		{"max_dead_bytes", c.MaxDeadBytes},
		{"max_claim_bytes", c.MaxClaimBytes},
		{"max_artifact_bytes", c.MaxArtifactBytes},
		{"max_files_bytes", c.MaxFilesBytes},
		{"max_memory_bytes", c.MaxMemoryBytes},
		{"max_audit_bytes", c.MaxAuditBytes},
		{"max_session_artifact_bytes", c.MaxSessionArtifactBytes},
		{"max_agent_artifact_bytes", c.MaxAgentArtifactBytes},
	} {
		if f.value < -1 {
			errs = append(errs, fmt.Errorf("streams.%s is %d, want a number of bytes, or -1 for no limit",
				f.name, f.value))
		}
	}
	if c.DeadAge < 0 || c.ClaimAge < 0 || c.AuditAge < 0 {
		errs = append(errs, errors.New("streams.dead_age, streams.claim_age and streams.audit_age must not be negative"))
	}
	if a := c.ArtifactAge; a != nil && *a < 0 {
		errs = append(errs, fmt.Errorf("streams.artifact_age is %v, want a duration, or 0 to keep files for ever", *a))
	}
	return errors.Join(errs...)
}

// wanted is a stream as it is created, and the limits that the configuration names.
type wanted struct {
	jetstream.StreamConfig
	given limits
}

// limits are those that an operator may set; zero means that the configuration does
// not set it.
type limits struct {
	replicas int
	maxBytes int64
	maxAge   time.Duration
}

func (c StreamsConfig) streams() []wanted {
	d := c.withDefaults()
	return append([]wanted{
		{jetstream.StreamConfig{
			Name: bus.StreamSessions, Description: "causes and commits of every session: the log of record",
			Subjects: []string{subject.AllSensed, subject.AllPeople, subject.AllCommits, subject.AllProbes},
			Storage:  jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
			MaxBytes: d.MaxBytes, Replicas: d.Replicas, Duplicates: bus.DuplicateWindow, AllowDirect: true,
		}, limits{replicas: c.Replicas, maxBytes: c.MaxBytes}},
		{jetstream.StreamConfig{
			Name: StreamTimers, Description: "timers to fire, and fired ones until they are handled",
			Subjects: []string{subject.AllTimers, subject.AllFired},
			// A fired timer goes when it is acknowledged; one that waits has no consumer and
			// stays. The server takes no schedules with DiscardNew, and with DiscardOld a
			// limit would silently drop timers, so there is none: core alone may publish here.
			Storage: jetstream.FileStorage, Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardOld,
			MaxBytes: -1, Replicas: d.Replicas, Duplicates: bus.DuplicateWindow,
			AllowMsgSchedules: true, AllowRollup: true,
		}, limits{replicas: c.Replicas}},
		{jetstream.StreamConfig{
			Name: StreamDead, Description: "copies of causes that could not be handled",
			Subjects: []string{subject.AllDead},
			Storage:  jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
			MaxBytes: d.MaxDeadBytes, MaxAge: d.DeadAge, Replicas: d.Replicas, Duplicates: bus.DuplicateWindow,
		}, limits{replicas: c.Replicas, maxBytes: c.MaxDeadBytes, maxAge: c.DeadAge}},
		{jetstream.StreamConfig{
			Name: StreamAudit, Description: "who did what, as a chain",
			Subjects: []string{subject.Audit},
			// A full one drops its oldest entries, which is visible: they are numbered. Nobody can delete
			// others without deleting the stream, which core notices.
			Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
			MaxBytes: d.MaxAuditBytes, MaxAge: d.AuditAge, Replicas: d.Replicas, Duplicates: bus.DuplicateWindow,
			AllowDirect: true, DenyDelete: true, DenyPurge: true,
		}, limits{replicas: c.Replicas, maxBytes: c.MaxAuditBytes, maxAge: c.AuditAge}},
	}, c.buckets()...)
}

// buckets are the key-value buckets. A full one refuses what is new; only those with an age forget.
func (c StreamsConfig) buckets() []wanted {
	memories := c.bucket(BucketMemories, "what agents remember, by agent and id", c.withDefaults().MaxMemoryBytes, 0)
	memories.given.maxBytes = c.MaxMemoryBytes
	// When it is full, workspaces are no longer copied, and results say so.
	files := c.bucket(BucketFiles, "copies of the workspaces of sandboxes, by agent and session", c.withDefaults().MaxFilesBytes, 0)
	files.given.maxBytes, files.RePublish = c.MaxFilesBytes, nil // nothing watches it
	return []wanted{
		files,
		c.plugins(),
		// Some thousand periods.
		c.bucket(BucketBudgets, "what the providers have spent, by period", 1<<20, 0),
		// When it is full, agents learn nothing more until somebody deletes memories or raises the limit.
		memories,
		// The state of some ten thousand topics or files.
		c.bucket(BucketListeners, "what listeners remember of their sources, and how they are", 128<<20, 0),
		// A record is of use until the call's turn has ended. When it is full, calls that need a record fail
		// before they have an effect.
		c.bucket(BucketEffects, "how far calls with a probe got, by key", 128<<20, 7*day),
		// The positions of some thousand listeners.
		c.bucket(BucketEmail, "how far email listeners have read, by listener", 16<<20, 0),
		// What was delivered, or could not be, is forgotten after a while; a message that was seen before is
		// recognized until then.
		c.bucket(BucketOutbox, "messages to people that are not delivered yet, by destination", 128<<20, 30*day),
		// A gateway that was away for longer does not read up on what people said meanwhile. When it is full,
		// requests for approval are not shown in chat.
		c.bucket(BucketGateways, "what chat gateways remember, by listener", 16<<20, 30*day),
		// Some ten thousand entries.
		c.bucket(BucketCron, "last occurrence of each entry of cron listeners", 16<<20, 0),
		// Some thousand identities.
		c.bucket(BucketIdentities, "who from outside may connect to the bus, by name", 16<<20, 0),
		// Some ten thousand schedules.
		c.bucket(BucketSchedules, "what agents have scheduled, by agent, session and name", 16<<20, 0),
	}
}

const day = 24 * time.Hour

// plugins is the bucket of plugins: a thousand, each with the largest manifest. It forgets nothing
// by itself: see schemas/adr/0007.
//
// Its entries replace each other by their headers, and not by the limit of the stream: what a limit removes is
// not recorded by the server, which finds it again after a kill, and would take an old lease for the last change
// of its key if the marker of its deletion is gone by then ([Bucket.Forget]).
func (c StreamsConfig) plugins() wanted {
	w := c.bucket(BucketPlugins, "the registry: manifests and leases of plugins", 256<<20, 0)
	w.MaxMsgsPerSubject = 64 // the most that clients of the key-value API take; it is never reached
	return w
}

// bucket is a bucket as the key-value API of any client makes it, so that people can look into it.
func (c StreamsConfig) bucket(name, description string, bytes int64, age time.Duration) wanted {
	return wanted{jetstream.StreamConfig{
		Name: bucketStream(name), Description: description, Subjects: []string{subject.BucketKey(name, ">")},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		MaxMsgsPerSubject: 1, MaxBytes: bytes, MaxAge: age, Replicas: c.withDefaults().Replicas,
		Duplicates: bus.DuplicateWindow, AllowDirect: true, AllowRollup: true, DenyDelete: true,
		RePublish: Notices(name),
	}, limits{replicas: c.Replicas}}
}

// Notices is how the stream of a bucket announces its changes; see [Bucket.Watch].
func Notices(bucket string) *jetstream.RePublish {
	return &jetstream.RePublish{
		Source: subject.BucketKey(bucket, ">"), Destination: subject.BucketChanges(bucket), HeadersOnly: true,
	}
}

// objectBucket is a bucket of bodies, which the object-store API creates, and the
// properties of its stream that are maintained.
type objectBucket struct {
	jetstream.ObjectStoreConfig
	discard jetstream.DiscardPolicy
	given   limits
}

// objectBuckets: a full bucket of bodies in transit drops the oldest; a full bucket of
// results that commits refer to refuses new ones.
func (c StreamsConfig) objectBuckets() []objectBucket {
	d := c.withDefaults()
	return []objectBucket{
		{jetstream.ObjectStoreConfig{
			Bucket: bus.BucketClaims, TTL: d.ClaimAge, MaxBytes: d.MaxClaimBytes, Replicas: d.Replicas,
			Storage: jetstream.FileStorage,
		}, jetstream.DiscardOld, limits{replicas: c.Replicas, maxBytes: c.MaxClaimBytes, maxAge: c.ClaimAge}},
		{jetstream.ObjectStoreConfig{
			Bucket: BucketArtifacts, MaxBytes: d.MaxArtifactBytes, Replicas: d.Replicas, Storage: jetstream.FileStorage,
			Metadata: c.artifactMetadata(),
		}, jetstream.DiscardNew, limits{replicas: c.Replicas, maxBytes: c.MaxArtifactBytes}},
	}
}
