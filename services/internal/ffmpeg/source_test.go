package ffmpeg_test

import (
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/internal/ffmpeg"
)

func TestSourcesThatAreNotSupportedAreRefused(t *testing.T) {
	sources := []ffmpeg.Source{
		{File: "a.mp4"},
		{File: "-i"},
		{File: "/a\nb"},
		{File: "/a", User: "u", Password: "p"},
		{URL: "http://h", User: "u"},
		{URL: "http://h/", Loop: true},
	}
	for _, u := range []string{
		"concat:/etc/passwd|/etc/shadow", "file:///etc/passwd", "lavfi:testsrc", "-i", "http://u:p@h/", "ftp://h/a", "rtsp:///a",
		"http://h/\x00",
	} {
		sources = append(sources, ffmpeg.Source{URL: u})
	}
	for _, s := range sources {
		err := s.Validate()
		if err == nil {
			t.Errorf("%+v is accepted", s)
		} else if strings.Contains(err.Error(), "u:p@") {
			t.Errorf("the error quotes a password: %v", err)
		}
	}
}

// What a configuration names never becomes an option, and no more may be read than it names.
func TestSourcesBecomeArguments(t *testing.T) {
	for _, c := range []struct {
		source ffmpeg.Source
		input  string
		allow  string
	}{
		{ffmpeg.Source{File: "/-films/a b.mp4"}, "file:/-films/a b.mp4", "file"},
		{ffmpeg.Source{URL: "http://cam/stream?a=b"}, "http://cam/stream?a=b", "http,tcp"},
		{ffmpeg.Source{URL: "rtsp://cam:554/1"}, "rtsp://cam:554/1", "rtsp,rtp,tcp,udp"},
		{ffmpeg.Source{URL: "rtsp://cam/1", User: "u", Password: "p"}, "pipe:0", "pipe,rtsp,rtp,tcp,udp"},
	} {
		child, err := c.source.Child("out")
		if err != nil || c.source.Validate() != nil {
			t.Fatal(err, c.source.Validate())
		}
		value := func(option string) string {
			if i := slices.Index(child.Args, option); i >= 0 && i+1 < len(child.Args) {
				return child.Args[i+1]
			}
			return ""
		}
		if value("-i") != c.input || value("-protocol_whitelist") != c.allow || child.Args[len(child.Args)-1] != "out" {
			t.Errorf("%+v: %q", c.source, child.Args)
		}
	}
}

func TestAPasswordIsNoArgument(t *testing.T) {
	t.Setenv("SKANDHA_TEST_CAM", "p'w d/")
	child, err := ffmpeg.Source{URL: "http://cam/a", User: "zoe", Password: "env:SKANDHA_TEST_CAM"}.Child()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(strings.Join(child.Args, " "), "p'w") || strings.Contains(strings.Join(child.Args, " "), "zoe") {
		t.Errorf("%q", child.Args)
	}
	if want := "ffconcat version 1.0\nfile 'http://zoe:p%27w%20d%2F@cam/a'\n"; string(child.Input) != want {
		t.Errorf("%q, want %q", child.Input, want)
	}
	if err := (ffmpeg.Source{URL: "http://cam/a", User: "u", Password: "env:SKANDHA_TEST_NONE"}).CheckSecrets(); err == nil {
		t.Error("a password that is not set is accepted")
	}
}
