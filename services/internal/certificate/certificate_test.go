package certificate_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/certificate"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func made(t *testing.T, o certificate.Options) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tls")
	if err := certificate.Init(dir, o, now); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestInit(t *testing.T) {
	dir := made(t, certificate.Options{Hosts: []string{"nats", "*.example.org", "127.0.0.1", "::1"}, Days: 90})
	i, err := certificate.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"nats", "*.example.org", "127.0.0.1", "::1"}; !slices.Equal(i.Hosts, want) {
		t.Errorf("it is for %v, want %v", i.Hosts, want)
	}
	if !i.Until.Equal(now.AddDate(0, 0, 90)) || len(i.Digest) != 32*3-1 {
		t.Errorf("it is %+v", i)
	}
	for name, mode := range map[string]os.FileMode{
		certificate.CAKeyFile: 0o600, certificate.ServerKeyFile: 0o600, certificate.CAFile: 0o644, certificate.ServerFile: 0o644,
	} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestInitOverwritesNothing(t *testing.T) {
	o := certificate.Options{Hosts: []string{"nats"}, Days: 1}
	dir := made(t, o)
	before, err := os.ReadFile(filepath.Join(dir, certificate.CAKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := certificate.Init(dir, o, now); err == nil || !strings.Contains(err.Error(), "exists; nothing was written") {
		t.Errorf("it is refused with %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, certificate.CAKeyFile)); err != nil || string(after) != string(before) {
		t.Error("the key is another one")
	}
}

func TestRenewKeepsTheAuthorityAndTheNames(t *testing.T) {
	dir := made(t, certificate.Options{Hosts: []string{"nats", "10.0.0.1"}, Days: 10})
	before, err := certificate.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	later := now.AddDate(0, 0, 20)
	if err := certificate.Renew(dir, certificate.Options{Days: 10}, later); err != nil {
		t.Fatal(err)
	}
	after, err := certificate.Read(dir)
	if err != nil || after.Digest != before.Digest || !slices.Equal(after.Hosts, before.Hosts) ||
		!after.Until.Equal(later.AddDate(0, 0, 10)) {
		t.Errorf("it was %+v and is %+v, %v", before, after, err)
	}
	if err := certificate.Renew(dir, certificate.Options{Days: 3650}, later); err != nil {
		t.Fatal(err)
	}
	if after, err = certificate.Read(dir); err != nil || after.Until.After(after.Root) {
		t.Errorf("it outlives its authority: %+v, %v", after, err)
	}
	err = certificate.Renew(dir, certificate.Options{Days: 1}, now.AddDate(11, 0, 0))
	if err == nil || !strings.Contains(err.Error(), "has expired on 2036-02-27") {
		t.Errorf("with an authority that has expired it is refused with %v", err)
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	for want, o := range map[string]certificate.Options{
		"no host":             {Days: 1},
		`host "nats:4222"`:    {Hosts: []string{"nats:4222"}, Days: 1},
		`host "a b"`:          {Hosts: []string{"a b"}, Days: 1},
		"days is 0, want 1":   {Hosts: []string{"nats"}},
		"days is 9999, want ": {Hosts: []string{"nats"}, Days: 9999},
	} {
		dir := filepath.Join(t.TempDir(), "tls")
		if err := certificate.Init(dir, o, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it is refused with %v, want %q", err, want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%q: something was written", want)
		}
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	dir := made(t, certificate.Options{Hosts: []string{"nats"}, Days: 1})
	other := made(t, certificate.Options{Hosts: []string{"nats"}, Days: 1})
	foreign, err := os.ReadFile(filepath.Join(other, certificate.CAFile))
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(dir, certificate.CAFile)
	for want, content := range map[string][]byte{"is not signed by ca.pem": foreign, "is not a CERTIFICATE in PEM": []byte("x")} {
		if err := os.WriteFile(ca, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := certificate.Read(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it is refused with %v, want %q", err, want)
		}
	}
	if _, err := certificate.Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "make the certificates first") {
		t.Errorf("without files it is refused with %v", err)
	}
}
