package sandbox_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/sandbox"
	"skandha.dev/services/test/natstest"
)

// file is the data of the results about files.
type file struct {
	Path, Type, Content, Encoding, Unit, Target, Mode, Note string
	Size, Offset                                            int64
	NextOffset                                              int64 `json:"next_offset"`
	Truncated                                               bool
	Replacements                                            int
	Ref                                                     string
	MediaType                                               string `json:"media_type"`
	Bytes                                                   int64
	Entries                                                 []file
	Matches                                                 []struct {
		Path, Text string
		Line       int
	}
}

// fs calls a tool of the group sandbox_fs and checks that it succeeds.
func (s *session) fs(name string, a args) (out file) {
	s.c.t.Helper()
	r := s.call("sandbox_fs:"+name, a)
	if !r.Success {
		s.c.t.Fatalf("%s %v: %+v", name, a, r.Error)
	}
	if err := json.Unmarshal(r.Data, &out); err != nil {
		s.c.t.Fatal(err)
	}
	return out
}

// refused checks that the tool fails with the sandbox's code.
func (s *session) refused(code, name string, a args) {
	s.c.t.Helper()
	r := s.call("sandbox_fs:"+name, a)
	if r.Success || r.Error.Code != tool.CodeFailed || len(r.Error.Details) != 1 || r.Error.Details[0] != code ||
		r.Error.Message == "" {
		s.c.t.Errorf("%s %v: got %+v, want %s", name, a, r, code)
	}
}

func TestFilesAreMadeLookedAtAndRemoved(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	if f := s.fs("write", args{"path": "d/a.txt", "content": "one\ntwo\n"}); f.Path != "d/a.txt" || f.Size != 8 ||
		f.Type != "file" {
		t.Errorf("got %+v", f)
	}
	s.refused("exists", "write", args{"path": "d/a.txt", "content": "", "mode": "create"})
	s.fs("write", args{"path": "/workspace/d/a.txt", "content": "three\n", "mode": "append"})
	if f := s.fs("read", args{"path": "d/a.txt"}); f.Content != "one\ntwo\nthree\n" || f.Truncated || f.Size != 14 {
		t.Errorf("got %+v", f)
	}
	if f := s.fs("edit", args{"path": "d/a.txt", "old": "two", "new": "2"}); f.Replacements != 1 {
		t.Errorf("got %+v", f)
	}
	s.refused("no_match", "edit", args{"path": "d/a.txt", "old": "two", "new": "2"})
	s.refused("ambiguous", "edit", args{"path": "d/a.txt", "old": "e", "new": "E"})
	if f := s.fs("edit", args{"path": "d/a.txt", "old": "e", "new": "E", "all": true}); f.Replacements != 3 {
		t.Errorf("got %+v", f)
	}
	s.fs("mkdir", args{"path": "x/y"})
	s.fs("move", args{"from": "d/a.txt", "to": "x/y/b.txt"})
	if f := s.fs("stat", args{"path": "x/y/b.txt"}); f.Type != "file" || f.Size != 12 || f.Mode != "0644" {
		t.Errorf("got %+v", f)
	}
	if l := s.fs("list", args{"path": "x"}); len(l.Entries) != 1 || l.Entries[0].Type != "directory" {
		t.Errorf("got %+v", l)
	}
	if l := s.fs("glob", args{"pattern": "**/*.txt"}); len(l.Entries) != 1 || l.Entries[0].Path != "x/y/b.txt" {
		t.Errorf("got %+v", l)
	}
	if m := s.fs("grep", args{"pattern": "^THR", "ignore_case": true}).Matches; len(m) != 1 || m[0].Line != 3 ||
		m[0].Text != "thrEE" {
		t.Errorf("got %+v", m)
	}
	s.refused("not_empty", "remove", args{"path": "x"})
	s.fs("remove", args{"path": "x", "recursive": true})
	s.refused("not_found", "stat", args{"path": "x"})
	if l := s.fs("list", args{}); len(l.Entries) != 1 || l.Entries[0].Path != "d" {
		t.Errorf("got %+v", l)
	}
}

func TestPathsOutsideTheWorkspaceAreRefused(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	s.python("import os\nos.symlink('/etc', 'etc')")
	for _, p := range []string{
		"/etc/passwd", "../etc/passwd", "a/../../etc/passwd", "/workspace/../etc/passwd", "etc/passwd",
	} {
		s.refused("outside", "read", args{"path": p})
		s.refused("outside", "write", args{"path": p, "content": "x"})
		s.refused("outside", "download", args{"path": p})
	}
}

func TestTextIsReadByLines(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	s.python("open('n.txt','w').write(''.join(f'line {i}\\n' for i in range(5000)))\n" +
		"open('long.txt','w').write('x'*100000 + '\\nend')\nopen('empty','w')")
	f := s.fs("read", args{"path": "n.txt", "offset": 10, "limit": 2})
	if f.Content != "line 10\nline 11\n" || f.Offset != 10 || f.NextOffset != 12 || !f.Truncated || f.Unit != "lines" {
		t.Errorf("got %+v", f)
	}
	var whole strings.Builder
	parts := 0
	for next := int64(0); ; parts++ {
		f := s.fs("read", args{"path": "n.txt", "offset": next})
		whole.WriteString(f.Content)
		if next = f.NextOffset; !f.Truncated {
			break
		}
	}
	if text := whole.String(); strings.Count(text, "\n") != 5000 || !strings.HasSuffix(text, "line 4998\nline 4999\n") ||
		parts < 3 {
		t.Errorf("%d bytes in %d parts", len(text), parts)
	}
	if f := s.fs("read", args{"path": "n.txt", "offset": 4999}); f.Content != "line 4999\n" || f.Truncated {
		t.Errorf("got %+v", f)
	}
	f = s.fs("read", args{"path": "long.txt"})
	if len(f.Content) > 12<<10 || f.NextOffset != 1 || f.Note == "" {
		t.Errorf("%d bytes, next %d, note %q", len(f.Content), f.NextOffset, f.Note)
	}
	if f := s.fs("read", args{"path": "long.txt", "offset": 1}); f.Content != "end" || f.Truncated {
		t.Errorf("got %+v", f)
	}
	if f := s.fs("read", args{"path": "empty"}); f.Content != "" || f.Size != 0 || f.Truncated {
		t.Errorf("got %+v", f)
	}
	if r := s.call("sandbox_fs:read", args{"path": "n.txt", "offset": 6000}); r.Success ||
		!strings.Contains(r.Error.Message, "5000 lines") {
		t.Errorf("got %+v", r)
	}
}

func TestBytesAreReadWithoutCuttingCharacters(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	s.fs("write", args{"path": "u", "content": strings.Repeat("ä€😀", 10)})
	var whole strings.Builder
	for next := int64(0); ; {
		f := s.fs("read", args{"path": "u", "unit": "bytes", "offset": next, "limit": 7})
		whole.WriteString(f.Content)
		if next = f.NextOffset; !f.Truncated {
			break
		}
	}
	if whole.String() != strings.Repeat("ä€😀", 10) {
		t.Errorf("got %q", whole.String())
	}
}

func TestBinaryFilesTravelAsBase64(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	data := make([]byte, 20000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	s.fs("write", args{"path": "b", "content": base64.StdEncoding.EncodeToString(data), "encoding": "base64"})
	if r := s.call("sandbox_fs:read", args{"path": "b"}); r.Success || !strings.Contains(r.Error.Message, "base64") {
		t.Errorf("got %+v", r)
	}
	var whole []byte
	for next := int64(0); ; {
		f := s.fs("read", args{"path": "b", "encoding": "base64", "offset": next})
		part, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil {
			t.Fatal(err)
		}
		whole = append(whole, part...)
		if next = f.NextOffset; !f.Truncated {
			break
		}
	}
	if string(whole) != string(data) {
		t.Errorf("%d bytes came back", len(whole))
	}
	if r := s.call("sandbox_fs:write", args{"path": "b", "content": "%", "encoding": "base64"}); r.Success {
		t.Errorf("got %+v", r)
	}
}

func TestFilesGoInAndOutThroughArtifacts(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	body := strings.Repeat("0123456789abcdef", 100_000) // several pieces
	if err := c.bus.PutArtifact(natstest.Context(t), "main/s/in/data.txt", []byte(body)); err != nil {
		t.Fatal(err)
	}
	if f := s.fs("upload", args{"artifact": "main/s/in/data.txt", "path": "in/data.txt"}); f.Size != int64(len(body)) {
		t.Errorf("got %+v", f)
	}
	f := s.fs("download", args{"path": "in/data.txt"})
	if f.Bytes != int64(len(body)) || f.MediaType != "text/plain" || !strings.HasPrefix(f.Ref, "main/s/") {
		t.Errorf("got %+v", f)
	}
	if got, err := c.bus.GetArtifact(natstest.Context(t), f.Ref); err != nil || string(got) != body {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := c.bus.PutArtifact(natstest.Context(t), "main/other/secret", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{
		"main/other/secret", "main/s/../other/secret", "main/s/", "main/s", "/main/s/x", "main/s//x",
	} {
		r := s.call("sandbox_fs:upload", args{"artifact": ref, "path": "x"})
		if r.Success || !strings.Contains(r.Error.Message, "not an artifact of this session") {
			t.Errorf("%s: got %+v", ref, r)
		}
	}
	s.python("with open('big','wb') as f: f.truncate(17<<20)")
	if r := s.call("sandbox_fs:download", args{"path": "big"}); r.Success ||
		!strings.Contains(r.Error.Message, "17825792 bytes") {
		t.Errorf("got %+v", r)
	}
}

// The result keeps the output, and says how to free space for the files.
func TestAFullArtifactQuotaCostsTheFilesAndNotTheRun(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	if err := c.bus.EnsureStreams(natstest.Context(t), journal.StreamsConfig{MaxSessionArtifactBytes: 10}); err != nil {
		t.Fatal(err)
	}
	s := c.session("s")
	got := s.python("for n in 'abc': open(f'out/{n}','w').write('1234567')\nprint('done')")
	if got.Stdout != "done\n" || len(got.Artifacts) != 1 || len(got.LeftOut) != 2 {
		t.Fatalf("got %+v", got)
	}
	contains(t, "the first", got.LeftOut[0], "out/b: artifact quota reached",
		"skandha artifacts rm --agent main --session s", "streams.max_session_artifact_bytes")
	contains(t, "the second", got.LeftOut[1], "out/c: not stored, for the same reason")
	r := s.call("sandbox_fs:download", args{"path": "out/b"})
	if r.Success {
		t.Fatalf("got %+v", r)
	}
	contains(t, "the error", r.Error.Message, "artifact quota reached", "skandha artifacts rm")
	if got := c.session("other").python("open('out/a','w').write('1234567')"); len(got.Artifacts) != 1 {
		t.Errorf("another session: %+v", got)
	}
	r = s.call("sandbox_fs:upload", args{"artifact": "main/s/gone", "path": "x"})
	contains(t, "the error", r.Error.Message, "artifact \"main/s/gone\" not found")
}

func TestAListingSaysThatThereIsMore(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	s.python("for i in range(600): open(f'{i:03}','w')")
	r := s.call("sandbox_fs:list", args{})
	if !r.Success || r.Metadata["truncated"] != true {
		t.Fatalf("%d bytes, %v", len(r.Data), r.Metadata)
	}
	body, err := s.c.bus.GetArtifact(natstest.Context(t), fmt.Sprint(r.Metadata["artifact"].(map[string]any)["ref"]))
	var l file
	if err == nil {
		err = json.Unmarshal(body, &l)
	}
	if err != nil || len(l.Entries) != 500 || !l.Truncated {
		t.Errorf("%d entries, %v", len(l.Entries), err)
	}
}
