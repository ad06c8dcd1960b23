package bustest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/natstest"
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
	for prefix, want := range map[string]string{"ada/one/": "ada/one/report.txt 6", "ada/on/": "ada/on/other.txt 1", "": "ada/on/other.txt 1 ada/one/report.txt 6", "bob": ""} {
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
