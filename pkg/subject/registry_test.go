package subject_test

import (
	"errors"
	"testing"

	"skandha.dev/pkg/subject"
)

func TestTheRegistrysSubjectsAreReadAsTheyAreWritten(t *testing.T) {
	for _, v := range []subject.PluginVerb{subject.Register, subject.Heartbeat, subject.Unregister} {
		verb, p, err := subject.ParseRegistry(subject.Registry(v, "weather"))
		if err != nil || verb != v || p != "weather" {
			t.Errorf("%s: %s %s %v", v, verb, p, err)
		}
	}
	for _, s := range []string{
		"", "plugin", "plugin.register", "plugin.register.a.b", "plugin.kill.a", "plugin.register.", "plugin.register.*",
		"tool.register.a", "plugin.Register.a", "plugin.register.a b",
	} {
		if v, p, err := subject.ParseRegistry(s); !errors.Is(err, subject.ErrInvalidSubject) {
			t.Errorf("%q is read as %s %s, %v", s, v, p, err)
		}
	}
}

func TestTheRegistrysKeysAreReadAsTheyAreWritten(t *testing.T) {
	if p, i, err := subject.ParsePluginKey(subject.ManifestKey("weather")); err != nil || p != "weather" || i != "" {
		t.Errorf("%s %s %v", p, i, err)
	}
	if p, i, err := subject.ParsePluginKey(subject.LeaseKey("weather", "w-1")); err != nil || p != "weather" ||
		i != "w-1" {
		t.Errorf("%s %s %v", p, i, err)
	}
	if got := subject.BucketKey("plugins", subject.AllManifests); got != "$KV.plugins.manifest.*" {
		t.Errorf("got %s", got)
	}
	for _, s := range []string{
		"", "manifest", "manifest.", "manifest.*", "manifest.a.b", "lease.a", "lease.a.", "lease..b", "lease.a.b.c",
		"lease.a.*", "other.a", "manifest.a b",
	} {
		if p, i, err := subject.ParsePluginKey(s); !errors.Is(err, subject.ErrInvalidSubject) {
			t.Errorf("%q is read as %s %s, %v", s, p, i, err)
		}
	}
}
