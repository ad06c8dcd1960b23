package hosts_test

import (
	"testing"

	"skandha.dev/services/internal/hosts"
)

func TestOnlyOwnNamesAreKnown(t *testing.T) {
	s := hosts.Of([]string{"Agent.example.org", "192.0.2.7", "2001:db8::1"})
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost:8090": true, "127.0.0.1:1": true, "127.9.9.9": true, "[::1]:8090": true, "[::1]": true,
		"[0:0::1]":           true,
		"[::ffff:127.0.0.1]": true, "agent.example.org": true, "AGENT.example.org:443": true, "192.0.2.7": true,
		"[2001:db8::1]:80": true,

		"": false, ":80": false, "evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
		"x.agent.example.org": false,
		"192.0.2.1":           false, "0.0.0.0": false, "[::]": false, "2130706433": false, "0x7f.1": false, "127.1": false,
		"localhost.": false, "agent.example.org.": false, "localhost:80:80": false, "localhost:": false,
		"localhost:evil": false, "localhost:0": false, "localhost:99999": false, "localhost:-1": false, "localhost:+1": false,
		"::1": false, "[::1": false, "::1]": false, "[[::1]]": false, "[::1]x": false, "[::1]:": false, "[localhost]": false,
		"[127.0.0.1]": false, "[::1%25lo]": false, "[::1%lo]": false,
		"user@localhost": false, "localhost@evil.example": false, "localhost, evil.example": false, "localhost evil": false,
		"localhost/": false, "localhost#": false, "localhost\x00": false,
	} {
		if got := s.Has(host); got != want {
			t.Errorf("%q is known: %t, want %t", host, got, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	for listen, want := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:80": true, "localhost:80": true, "": false, ":80": false, "0.0.0.0:80": false,
		"[::]:80": false, "192.0.2.1:80": false, "host:80": false, "nonsense": false,
	} {
		if got := hosts.ListensOnLoopback(listen); got != want {
			t.Errorf("%q is loopback: %t, want %t", listen, got, want)
		}
	}
}

func TestWhatIsConfiguredIsChecked(t *testing.T) {
	for name, good := range map[string]bool{
		"agent.example.org": true, "Agent": true, "192.0.2.1": true, "2001:db8::1": true, "": false, "a:80": false,
		"http://a": false, "*.a": false, "a,b": false, "a b": false, "u@a": false,
	} {
		if err := hosts.Check(name); (err == nil) != good {
			t.Errorf("host %q: %v", name, err)
		}
	}
	for origin, good := range map[string]bool{
		"https://app.example.org": true, "http://localhost:3000": true, "http://[::1]:3000": true, "": false, "null": false,
		"*": false, "https://*.example.org": false,
		"https://app.example.org/": false, "app.example.org": false, "https://App.example.org": false, "https://u@app": false,
		"file://x": false, "https://app:x": false,
	} {
		if err := hosts.CheckOrigin(origin); (err == nil) != good {
			t.Errorf("origin %q: %v", origin, err)
		}
	}
	for addr, good := range map[string]bool{
		"127.0.0.1:0": true, ":80": true, "[::1]:1": true, "": false, "7070": false, "a:b": false, "a:99999": false,
	} {
		if err := hosts.CheckListen(addr); (err == nil) != good {
			t.Errorf("address %q: %v", addr, err)
		}
	}
}
