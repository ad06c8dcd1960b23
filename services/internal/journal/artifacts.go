package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
)

// ArtifactLimits are the limits of the bucket artifacts. Core stores them in the bucket's
// metadata, where every process that stores artifacts reads them.
//
// Names are <agent>/<session>/…: the whole data of a result is …/<call>/<attempt>, a
// file that a call left …/<call>/<attempt>/<path>, a person's …/uploads/<name>.
type ArtifactLimits struct {
	SessionBytes int64         // of all artifacts of a session; default 1 GiB, -1 unlimited
	AgentBytes   int64         // of all artifacts of an agent; default 8 GiB, -1 unlimited
	Age          time.Duration // after which files are deleted, results never; default 30 days, 0: never
}

func defaultArtifactLimits() ArtifactLimits {
	return ArtifactLimits{SessionBytes: 1 << 30, AgentBytes: 8 << 30, Age: 30 * 24 * time.Hour}
}

// The keys of the metadata. What is not configured is not stored.
const (
	metaSessionBytes = "skandha.max_session_artifact_bytes"
	metaAgentBytes   = "skandha.max_agent_artifact_bytes"
	metaArtifactAge  = "skandha.artifact_age"
)

const (
	// usageAge is how long a listing of the artifacts is used while no quota is reached, by
	// it and by what this process has stored since; usagePause if one is.
	usageAge, usagePause = time.Minute, time.Second
	// expireAfter and expireEvery are when [Journal.KeepArtifacts] looks.
	expireAfter, expireEvery = time.Minute, time.Hour
)

func (c StreamsConfig) artifactMetadata() map[string]string {
	m := map[string]string{}
	if c.MaxSessionArtifactBytes != 0 {
		m[metaSessionBytes] = strconv.FormatInt(c.MaxSessionArtifactBytes, 10)
	}
	if c.MaxAgentArtifactBytes != 0 {
		m[metaAgentBytes] = strconv.FormatInt(c.MaxAgentArtifactBytes, 10)
	}
	if c.ArtifactAge != nil {
		m[metaArtifactAge] = c.ArtifactAge.String()
	}
	return m
}

// artifactLimits reads the metadata; an invalid value counts as absent.
func artifactLimits(m map[string]string) ArtifactLimits {
	l := defaultArtifactLimits()
	if n, err := strconv.ParseInt(m[metaSessionBytes], 10, 64); err == nil {
		l.SessionBytes = n
	}
	if n, err := strconv.ParseInt(m[metaAgentBytes], 10, 64); err == nil {
		l.AgentBytes = n
	}
	if d, err := time.ParseDuration(m[metaArtifactAge]); err == nil {
		l.Age = d
	}
	return l
}

// ArtifactInfo describes an artifact.
type ArtifactInfo struct {
	Name   string    `json:"name"`
	Bytes  uint64    `json:"bytes"`
	Stored time.Time `json:"stored"`
}

// File reports whether the artifact is a file, which a call left or a user stored. Any other
// artifact is the data of a result that a commit refers to.
func (a ArtifactInfo) File() bool {
	parts := strings.SplitN(a.Name, "/", 5)
	return len(parts) == 5 || len(parts) == 4 && parts[2] == "uploads"
}

// PutArtifact stores a body under a name until it is deleted, or until it is older than
// [ArtifactLimits] allow; the same name again replaces it. Commits refer to artifacts. It
// returns [bus.ErrTooLarge], with what to do, when the session or the agent has used up its
// quota or the store is full. What other processes have stored within the last minute
// may be missing in what is compared with the quotas.
func (j *Journal) PutArtifact(ctx context.Context, name string, data []byte) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	if err := j.reserve(ctx, name, int64(len(data))); err != nil {
		return err
	}
	err := j.PutObject(ctx, BucketArtifacts, name, data)
	if err == nil {
		return nil
	}
	j.usage.add(name, -int64(len(data)))
	var e *jetstream.APIError
	switch {
	case !errors.As(err, &e):
	case bus.StreamFull(e):
		return bus.Errorf(bus.CodeTooLarge, "the artifact store is full, nothing was stored: "+
			"delete some with \"skandha artifacts rm\", or raise streams.max_artifact_bytes")
	case bus.ServerFull(e):
		return bus.Errorf(bus.CodeTooLarge, "nats-server has no storage left, the artifact was not stored: "+
			"delete some with \"skandha artifacts rm\", or raise jetstream.max_file_store")
	}
	return err
}

// GetArtifact fetches a body by its name, or returns [bus.ErrNotFound].
func (j *Journal) GetArtifact(ctx context.Context, name string) ([]byte, error) {
	return j.GetObject(ctx, BucketArtifacts, name)
}

// Artifacts lists the artifacts whose names begin with the prefix, sorted by name.
func (j *Journal) Artifacts(ctx context.Context, prefix string) ([]ArtifactInfo, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	all, err := j.Objects(ctx, BucketArtifacts)
	if err != nil {
		return nil, bus.TransportError("listing "+BucketArtifacts, err)
	}
	var out []ArtifactInfo
	for _, o := range all {
		if strings.HasPrefix(o.Name, prefix) {
			out = append(out, ArtifactInfo{o.Name, o.Size, o.ModTime})
		}
	}
	slices.SortFunc(out, func(x, y ArtifactInfo) int { return strings.Compare(x.Name, y.Name) })
	return out, nil
}

// DeleteArtifact deletes a body. It is not an error if the body does not exist.
func (j *Journal) DeleteArtifact(ctx context.Context, name string) error {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	store, err := j.ObjectStore(ctx, BucketArtifacts)
	if err == nil {
		err = store.Delete(ctx, name)
	}
	if err == nil {
		err = j.forgetDeleted(ctx, name)
	}
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return bus.TransportError("deleting "+name+" from "+BucketArtifacts, err)
	}
	return nil
}

// forgetDeleted removes the marker that the object store leaves of a deleted object:
// they would fill the bucket in the end, and slow down every listing before that.
func (j *Journal) forgetDeleted(ctx context.Context, name string) error {
	s, err := j.data.JetStream().Stream(ctx, bus.ObjectStream(BucketArtifacts))
	if err != nil {
		return err
	}
	subj := bus.ObjectEntry(BucketArtifacts, name)
	last, err := s.GetLastMsgForSubject(ctx, subj)
	if err != nil {
		return err
	}
	var info jetstream.ObjectInfo
	if err := json.Unmarshal(last.Data, &info); err != nil || !info.Deleted {
		return err // it was stored again meanwhile
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(subj), jetstream.WithPurgeSequence(last.Sequence+1))
}

// KeepArtifacts deletes, once an hour until ctx ends, the files that are older than
// [ArtifactLimits] allow.
func (j *Journal) KeepArtifacts(ctx context.Context) {
	next := time.NewTimer(expireAfter)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		switch n, err := j.ExpireArtifacts(ctx, time.Now()); {
		case err != nil && ctx.Err() == nil:
			j.log.Warn("cannot delete old artifacts; will retry", "error", err)
		case n > 0:
			j.log.Info("deleted old artifacts", "files", n)
		}
		next.Reset(expireEvery)
	}
}

// ExpireArtifacts deletes the files that at now are older than [ArtifactLimits] allow,
// and reports how many. Data of results stays: commits of any age may refer to it.
func (j *Journal) ExpireArtifacts(ctx context.Context, now time.Time) (deleted int, err error) {
	limits, err := j.ArtifactLimits(ctx)
	if err != nil || limits.Age == 0 {
		return 0, err
	}
	all, err := j.Artifacts(ctx, "")
	for _, a := range all {
		if !a.File() || now.Sub(a.Stored) <= limits.Age {
			continue
		}
		if err := j.DeleteArtifact(ctx, a.Name); err != nil {
			return deleted, err
		}
		deleted++
	}
	return deleted, err
}

// ArtifactLimits returns the limits in effect.
func (j *Journal) ArtifactLimits(ctx context.Context) (ArtifactLimits, error) {
	ctx, cancel := bus.Bounded(ctx)
	defer cancel()
	store, err := j.ObjectStore(ctx, BucketArtifacts)
	if err != nil {
		return ArtifactLimits{}, bus.TransportError("reading the limits of "+BucketArtifacts, err)
	}
	st, err := store.Status(ctx)
	if err != nil {
		return ArtifactLimits{}, bus.TransportError("reading the limits of "+BucketArtifacts, err)
	}
	return artifactLimits(st.Metadata()), nil
}

// usage is the size of the artifacts of agents and sessions, as far as this process knows.
type usage struct {
	turn   chan struct{} // holds one: who lists
	mu     sync.Mutex
	limits ArtifactLimits
	at     time.Time        // of the listing; zero: none
	bytes  map[string]int64 // by agent, and by agent/session
}

func newUsage() *usage { return &usage{turn: make(chan struct{}, 1)} }

// owners returns the agent and the session in the name of an artifact.
func owners(name string) []string {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) < 3 {
		return parts[:1]
	}
	return []string{parts[0], parts[0] + "/" + parts[1]}
}

func (u *usage) add(name string, n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, o := range owners(name) {
		if u.bytes != nil {
			u.bytes[o] += n
		}
	}
}

// admit counts n more bytes, if the quotas allow it. stale reports that the listing is
// too old to say.
func (u *usage) admit(name string, n int64) (stale bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	age := time.Since(u.at)
	if u.bytes == nil || age > usageAge {
		return true, nil
	}
	for i, o := range owners(name) {
		limit, setting, rm := u.limits.AgentBytes, "streams.max_agent_artifact_bytes", "--agent "+o
		if agent, session, ok := strings.Cut(o, "/"); i > 0 && ok {
			limit, setting, rm = u.limits.SessionBytes, "streams.max_session_artifact_bytes",
				"--agent "+agent+" --session "+session
		}
		if limit >= 0 && u.bytes[o]+n > limit {
			return age > usagePause, bus.Errorf(bus.CodeTooLarge, "artifact quota reached, nothing was stored: "+
				"the artifacts of %s have %d bytes, this one %d, at most %d are allowed; "+
				"delete some with \"skandha artifacts rm %s\", or raise %s", o, u.bytes[o], n, limit, rm, setting)
		}
	}
	for _, o := range owners(name) {
		u.bytes[o] += n
	}
	return false, nil
}

// reserve counts an artifact that will be stored, or returns why it must not be.
func (j *Journal) reserve(ctx context.Context, name string, n int64) error {
	u := j.usage
	stale, err := u.admit(name, n)
	if !stale {
		return err
	}
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-ctx.Done():
		return bus.TransportError("waiting for a listing of "+BucketArtifacts, ctx.Err())
	}
	if stale, err = u.admit(name, n); !stale {
		return err
	}
	if err := j.measure(ctx); err != nil {
		return err
	}
	_, err = u.admit(name, n)
	return err
}

// measure lists the stored artifacts.
func (j *Journal) measure(ctx context.Context) error {
	limits, err := j.ArtifactLimits(ctx)
	if err != nil {
		return err
	}
	all, err := j.Artifacts(ctx, "")
	if err != nil {
		return fmt.Errorf("comparing artifacts with their quotas: %w", err)
	}
	bytes := map[string]int64{}
	for _, a := range all {
		for _, o := range owners(a.Name) {
			bytes[o] += int64(a.Bytes) //nolint:gosec // at most bus.MaxClaimBytes
		}
	}
	u := j.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limits, u.bytes, u.at = limits, bytes, time.Now()
	return nil
}
