package bustest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

func config(t testing.TB, b *journal.Journal, name string) jetstream.StreamConfig {
	t.Helper()
	s, err := b.JetStream().Stream(natstest.Context(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config
}

func TestTheLogIsSafeByConfiguration(t *testing.T) {
	c := config(t, start(t), bus.StreamSessions)
	slices.Sort(c.Subjects)
	want := []string{subject.AllSensed, subject.AllPeople, subject.AllCommits, subject.AllProbes}
	slices.Sort(want)
	if !slices.Equal(c.Subjects, want) {
		t.Errorf("subjects %v", c.Subjects)
	}
	if c.Storage != jetstream.FileStorage || c.Discard != jetstream.DiscardNew || c.MaxAge != 0 || !c.AllowDirect ||
		c.NoAck {
		t.Errorf("%+v", c)
	}
	if c.AllowMsgSchedules || c.AllowMsgTTL || c.AllowRollup || c.AllowMsgCounter || c.AllowAtomicPublish ||
		c.AllowBatchPublish {
		t.Errorf("a header can do more than store a message: %+v", c)
	}
}

func TestHeadersCannotForgeACommitOrMakeTheLogForget(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	seqs := commits(t, b, ref("one"), 3, 1)
	for _, h := range []nats.Header{
		{"Nats-Schedule": {"@at " + time.Now().Format(time.RFC3339)}, "Nats-Schedule-Target": {ref("one").Commit()}},
		{"Nats-Rollup": {"all"}},
		{"Nats-Rollup": {"sub"}},
		{"Nats-TTL": {"1s"}},
	} {
		_, err := b.JetStream().PublishMsg(ctx, &nats.Msg{Subject: ref("one").Cause(subject.Input, "mallory"), Header: h})
		if err == nil {
			t.Errorf("%v was stored", h)
		}
	}
	if got := readCommits(t, b, ref("one"), 0); !slices.Equal(got, seqs) {
		t.Errorf("commits %v, want %v", got, seqs)
	}
}

func TestEnsuringStreamsAgainChangesNothing(t *testing.T) {
	s := natstest.Start(t)
	b := natstest.Connect(t, s)
	want := cause(t, b, ref("one"), "a", "x")
	before := config(t, b, journal.StreamTimers)
	for range 3 {
		natstest.EnsureStreams(t, natstest.Dial(t, bus.Config{InProcess: s}))
	}
	if m := messages(t, b, ref("one")); len(m) != 1 || m[0].Seq != want {
		t.Errorf("%v", m)
	}
	if after := config(t, b, journal.StreamTimers); after.AllowMsgSchedules != before.AllowMsgSchedules ||
		!slices.Equal(after.Subjects, before.Subjects) {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestManyProcessesEnsureStreamsAtOnce(t *testing.T) {
	s, ctx := natstest.Start(t), natstest.Context(t)
	var wg sync.WaitGroup
	for range 8 {
		b := natstest.Dial(t, bus.Config{InProcess: s})
		wg.Go(func() {
			if err := b.EnsureStreams(ctx, journal.StreamsConfig{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestHarmlessDifferencesAreMended(t *testing.T) {
	ctx := natstest.Context(t)
	b := natstest.Dial(t, bus.Config{InProcess: natstest.Start(t)})
	_, err := b.JetStream().CreateStream(ctx, jetstream.StreamConfig{
		Name: bus.StreamSessions, Subjects: []string{subject.AllCauses}, MaxAge: time.Hour, MaxMsgs: 5, MaxBytes: 1 << 20,
		AllowRollup: true,
		Discard:     jetstream.DiscardOld, RePublish: &jetstream.RePublish{Source: ">", Destination: "leak.>"},
		AllowAtomicPublish: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	natstest.EnsureStreams(t, b)
	c := config(t, b, bus.StreamSessions)
	if len(c.Subjects) != 4 || c.MaxAge != 0 || c.MaxMsgs != -1 || c.AllowRollup || c.Discard != jetstream.DiscardNew ||
		c.RePublish != nil || c.AllowAtomicPublish || c.MaxBytes != 8<<30 || !c.AllowDirect {
		t.Errorf("%+v", c)
	}
}

// A start, with any configuration, keeps what an operator has set, and deletes nothing
// that is stored.
func TestAStartLowersNoLimit(t *testing.T) {
	s, ctx := natstest.Start(t), natstest.Context(t)
	b := natstest.Dial(t, bus.Config{InProcess: s})
	large := journal.StreamsConfig{
		MaxBytes: 20 << 30, MaxDeadBytes: -1, DeadAge: 90 * 24 * time.Hour, MaxClaimBytes: 5 << 30, ClaimAge: 48 * time.Hour,
	}
	if err := b.EnsureStreams(ctx, large); err != nil {
		t.Fatal(err)
	}
	is := func(what string) {
		t.Helper()
		log, dead, claims := config(t, b, bus.StreamSessions), config(t, b, journal.StreamDead), config(t, b, "OBJ_claims")
		if log.MaxBytes != 20<<30 || dead.MaxBytes != -1 || dead.MaxAge != 90*24*time.Hour || claims.MaxBytes != 5<<30 ||
			claims.MaxAge != 48*time.Hour {
			t.Errorf("%s: SESSIONS %d, DEAD %d %v, claims %d %v",
				what, log.MaxBytes, dead.MaxBytes, dead.MaxAge, claims.MaxBytes, claims.MaxAge)
		}
	}
	is("as configured")
	natstest.EnsureStreams(t, b)
	is("a start that configures nothing")

	if err := b.PublishDead(ctx, ref("one"), nil, make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	if err := b.EnsureStreams(ctx, journal.StreamsConfig{MaxDeadBytes: 1024}); err != nil {
		t.Fatal(err)
	}
	is("a limit below what is stored")
	if err := b.EnsureStreams(ctx, journal.StreamsConfig{MaxDeadBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if c := config(t, b, journal.StreamDead); c.MaxBytes != 1<<20 {
		t.Errorf("a limit that is configured and holds what is stored: %d", c.MaxBytes)
	}
}

func TestDangerousStreamsAreRefusedByField(t *testing.T) {
	for field, c := range map[string]jetstream.StreamConfig{
		"allow_msg_schedules": {AllowMsgSchedules: true},
		"allow_msg_ttl":       {AllowMsgTTL: true},
		"storage":             {Storage: jetstream.MemoryStorage},
		"retention":           {Retention: jetstream.WorkQueuePolicy},
		"persist_mode":        {PersistMode: jetstream.AsyncPersistMode},
		"subject_transform": {
			SubjectTransform: &jetstream.SubjectTransformConfig{
				Source: "agent.*.*.sense.input.*", Destination: "agent.$1.$2.commit",
			},
		},
		"sources": {Sources: []*jetstream.StreamSource{{Name: "OTHER"}}},
	} {
		t.Run(field, func(t *testing.T) {
			ctx := natstest.Context(t)
			b := natstest.Dial(t, bus.Config{InProcess: natstest.Start(t)})
			c.Name, c.Subjects = bus.StreamSessions, []string{subject.AllCauses, subject.AllCommits}
			if _, err := b.JetStream().CreateStream(ctx, c); err != nil {
				t.Fatal(err)
			}
			err := b.EnsureStreams(ctx, journal.StreamsConfig{})
			if err == nil || !strings.Contains(err.Error(), bus.StreamSessions+": "+field) {
				t.Errorf("%v, want an error that names %s", err, field)
			}
		})
	}
}

func TestForeignStreamOnOurSubjectsIsAnError(t *testing.T) {
	ctx := natstest.Context(t)
	b := natstest.Dial(t, bus.Config{InProcess: natstest.Start(t)})
	if _, err := b.JetStream().CreateStream(ctx,
		jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"agent.>"}}); err != nil {
		t.Fatal(err)
	}
	if err := b.EnsureStreams(ctx, journal.StreamsConfig{}); err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("%v, want an error about overlapping subjects", err)
	}
}

func TestStreamsConfigIsChecked(t *testing.T) {
	b := natstest.Dial(t, bus.Config{InProcess: natstest.Start(t)})
	for field, c := range map[string]journal.StreamsConfig{
		"streams.replicas":  {Replicas: 2},
		"streams.max_bytes": {MaxBytes: -2},
		"streams.dead_age":  {DeadAge: -1},
		"streams.claim_age": {ClaimAge: -1},

		"streams.artifact_age":               {ArtifactAge: new(-time.Hour)},
		"streams.max_session_artifact_bytes": {MaxSessionArtifactBytes: -2},
		"streams.max_agent_artifact_bytes":   {MaxAgentArtifactBytes: -2},
	} {
		if err := b.EnsureStreams(natstest.Context(t), c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v, want an error that names %s", err, field)
		}
	}
}

func TestDeadKeepsACopy(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	if err := b.PublishDead(ctx, ref("one"), nats.Header{"Reason": {"poison"}}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	s, err := b.JetStream().Stream(ctx, journal.StreamDead)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(ctx, ref("one").Dead())
	if err != nil || string(m.Data) != "x" || m.Header.Get("Reason") != "poison" {
		t.Errorf("%+v, %v", m, err)
	}
}

// A bucket of an older version, which any client of NATS has made, keeps its values and announces changes.
func TestAnOldBucketAnnouncesItsChanges(t *testing.T) {
	ctx, b := natstest.Context(t), natstest.Dial(t, bus.Config{InProcess: natstest.Start(t)})
	kv, err := b.JetStream().CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: journal.BucketCron, Storage: jetstream.FileStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(ctx, "clock.job", "old"); err != nil {
		t.Fatal(err)
	}
	natstest.EnsureStreams(t, b)
	if c := config(t, b, "KV_"+journal.BucketCron); c.RePublish == nil || !c.RePublish.HeadersOnly {
		t.Errorf("republish is %+v", c.RePublish)
	}
	if e, err := b.Bucket(journal.BucketCron).Get(ctx, "clock.job"); err != nil || string(e.Value) != "old" {
		t.Errorf("%q, %v", e.Value, err)
	}
}
