package bustest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/test/natstest"
)

func TestClaimsKeepTheirBodies(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	for _, body := range [][]byte{{}, []byte("x"), bytes.Repeat([]byte("0123456789"), 1<<20)} {
		ref, err := b.PutClaim(ctx, body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.GetClaim(ctx, ref)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes came back as %d, %v", len(body), len(got), err)
		}
		again, err := b.PutClaim(ctx, body)
		if err != nil || again == ref {
			t.Errorf("the same body again has the same reference, or %v", err)
		}
	}
}

func TestClaimReferencesAreChecked(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	ref, err := b.PutClaim(ctx, []byte("honest"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := b.JetStream().ObjectStore(ctx, bus.BucketClaims)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.PutString(ctx, ref, "tampered"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.GetClaim(ctx, ref); !errors.Is(err, bus.ErrConflict) {
		t.Errorf("a body that was changed: %v, want ErrConflict", err)
	}
	if _, err := b.GetClaim(ctx, strings.Repeat("0", 64)+".gone"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("a body that is not there: %v, want ErrNotFound", err)
	}
	for _, bad := range []string{"", "x", strings.Repeat("0", 200) + ".x"} {
		if _, err := b.GetClaim(ctx, bad); !errors.Is(err, bus.ErrInvalidArgument) {
			t.Errorf("%q: %v, want ErrInvalidArgument", bad, err)
		}
	}
	if _, err := b.PutClaim(ctx, make([]byte, bus.MaxClaimBytes+1)); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("a body above the limit: %v, want ErrTooLarge", err)
	}
}

func TestArtifactsAreKeptByName(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	for _, body := range []string{"first", "second"} {
		if err := b.PutArtifact(ctx, "ada/one/report.txt", []byte(body)); err != nil {
			t.Fatal(err)
		}
		if got, err := b.GetArtifact(ctx, "ada/one/report.txt"); err != nil || string(got) != body {
			t.Errorf("%q, %v, want %q", got, err, body)
		}
	}
	if err := b.PutArtifact(ctx, "ada/on/other.txt", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string]string{
		"ada/one/": "ada/one/report.txt 6", "ada/on/": "ada/on/other.txt 1", "": "ada/on/other.txt 1 ada/one/report.txt 6",
		"bob": "",
	} {
		all, err := b.Artifacts(ctx, prefix)
		var got []string
		for _, a := range all {
			got = append(got, fmt.Sprint(a.Name, " ", a.Bytes))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("below %q there are %v, %v, want %s", prefix, got, err, want)
		}
	}
	for range 2 {
		if err := b.DeleteArtifact(ctx, "ada/one/report.txt"); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.GetArtifact(ctx, "ada/one/report.txt"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}

func TestArtifactQuotasAreKeptPerSessionAndAgent(t *testing.T) {
	ctx, s := natstest.Context(t), natstest.Start(t)
	b := natstest.Connect(t, s)
	if err := b.EnsureStreams(ctx,
		journal.StreamsConfig{MaxSessionArtifactBytes: 100, MaxAgentArtifactBytes: 150}); err != nil {
		t.Fatal(err)
	}
	natstest.EnsureStreams(t, b) // a setting that is absent keeps what is there
	put := func(b *journal.Journal, name string, n int) error { return b.PutArtifact(ctx, name, make([]byte, n)) }
	if err := put(b, "ada/one/c/n/a", 60); err != nil {
		t.Fatal(err)
	}
	other := natstest.Connect(t, s) // another process
	for _, x := range []struct {
		name    string
		bytes   int
		refused []string // empty: it is stored
	}{
		{"ada/one/c/n/b", 50, []string{"ada/one have 60 bytes", "--agent ada --session one", "max_session_artifact_bytes"}},
		{"ada/one/c/n/b", 40, nil},
		{"ada/two/c/n", 60, []string{"ada have 100 bytes", "rm --agent ada\"", "max_agent_artifact_bytes"}},
		{"bob/one/c/n", 60, nil},
	} {
		err := put(other, x.name, x.bytes)
		if len(x.refused) == 0 && err != nil || len(x.refused) > 0 && !errors.Is(err, bus.ErrTooLarge) {
			t.Errorf("%s, %d bytes: %v", x.name, x.bytes, err)
		}
		for _, want := range x.refused {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want it to say %q", x.name, err, want)
			}
		}
	}
	if err := b.DeleteArtifact(ctx, "ada/one/c/n/a"); err != nil {
		t.Fatal(err)
	}
	if err := put(natstest.Connect(t, s), "ada/one/c/n/c", 60); err != nil {
		t.Errorf("what was deleted still counts: %v", err)
	}
}

func TestAFullArtifactStoreSaysWhatToDo(t *testing.T) {
	ctx, b := natstest.Context(t), natstest.Connect(t, natstest.Start(t))
	store, err := b.JetStream().Stream(ctx, "OBJ_artifacts")
	if err != nil {
		t.Fatal(err)
	}
	small := store.CachedInfo().Config
	small.MaxBytes = 64 << 10
	if _, err := b.JetStream().UpdateStream(ctx, small); err != nil {
		t.Fatal(err)
	}
	err = b.PutArtifact(ctx, "ada/one/c/n/a", make([]byte, 128<<10))
	if !errors.Is(err, bus.ErrTooLarge) || !strings.Contains(err.Error(), "skandha artifacts rm") ||
		!strings.Contains(err.Error(), "streams.max_artifact_bytes") || strings.Contains(err.Error(), "nats") {
		t.Errorf("got %v", err)
	}
	if err := b.PutArtifact(ctx, "ada/one/c/n/b", make([]byte, 1<<10)); err != nil {
		t.Errorf("one that fits: %v", err)
	}
}

// Commits refer to the data of results, so it does not expire.
func TestOldFilesExpireAndResultsDoNot(t *testing.T) {
	ctx, b := natstest.Context(t), natstest.Connect(t, natstest.Start(t))
	if err := b.EnsureStreams(ctx, journal.StreamsConfig{ArtifactAge: new(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ada/one/t1-p1-c0/n", "ada/one/t1-p1-c0/n/plot.png", "ada/one/uploads/mine.csv", "odd"} {
		if err := b.PutArtifact(ctx, name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	expired(t, b, 59*time.Minute, "0 ada/one/t1-p1-c0/n ada/one/t1-p1-c0/n/plot.png ada/one/uploads/mine.csv odd")
	expired(t, b, 61*time.Minute, "2 ada/one/t1-p1-c0/n odd")
	info, err := b.JetStream().Stream(ctx, "OBJ_artifacts")
	if err != nil {
		t.Fatal(err)
	}
	if n := info.CachedInfo().State.Msgs; n != 4 { // body and description of each
		t.Errorf("%d messages are left of two artifacts", n)
	}
	if err := b.EnsureStreams(ctx, journal.StreamsConfig{ArtifactAge: new(time.Duration)}); err != nil {
		t.Fatal(err)
	}
	if l, err := b.ArtifactLimits(ctx); err != nil || l.Age != 0 || l.SessionBytes != 1<<30 {
		t.Errorf("%+v, %v", l, err)
	}
}

func expired(t *testing.T, b *journal.Journal, after time.Duration, want string) {
	t.Helper()
	ctx := natstest.Context(t)
	n, err := b.ExpireArtifacts(ctx, time.Now().Add(after))
	if err != nil {
		t.Fatal(err)
	}
	all, err := b.Artifacts(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(n)
	for _, a := range all {
		got += " " + a.Name
	}
	if got != want {
		t.Errorf("after %v: %s, want %s", after, got, want)
	}
}

// A body is read in any number of chunks, and one whose chunks were changed is refused.
func TestABodyIsCheckedAgainstItsDigest(t *testing.T) {
	ctx, b := natstest.Context(t), start(t)
	for _, n := range []int{0, 1, 128 << 10, 5 << 20} {
		data := bytes.Repeat([]byte("x"), n)
		name := fmt.Sprintf("main/s/c/%d", n)
		if err := b.PutArtifact(ctx, name, data); err != nil {
			t.Fatal(err)
		}
		if got, err := b.GetArtifact(ctx, name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: read %d, %v", n, len(got), err)
		}
	}
	store, err := b.ObjectStore(ctx, journal.BucketArtifacts)
	if err != nil {
		t.Fatal(err)
	}
	info, err := store.GetInfo(ctx, "main/s/c/1")
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.JetStream().Stream(ctx, bus.ObjectStream(journal.BucketArtifacts))
	if err != nil {
		t.Fatal(err)
	}
	chunk := "$O." + journal.BucketArtifacts + ".C." + info.NUID
	if err := s.Purge(ctx, jetstream.WithPurgeSubject(chunk)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.GetArtifact(ctx, "main/s/c/1"); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("without its chunk: %v", err)
	}
	if _, err := b.JetStream().Publish(ctx, chunk, []byte("y")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.GetArtifact(ctx, "main/s/c/1"); !errors.Is(err, bus.ErrConflict) {
		t.Errorf("with another chunk: %v", err)
	}
}
