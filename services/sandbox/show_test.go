package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"image/color"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/provider"
	"skandha.dev/services/provider/anthropic"
	"skandha.dev/services/provider/openai"
	"skandha.dev/services/sandbox"
	"skandha.dev/services/test/anthropictest"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/test/openaitest"
	"skandha.dev/services/test/providertest"
	"skandha.dev/services/test/scripted"
)

// shown reads a file that the model is shown, and checks that it is stored as it is described.
func (s *session) shown(path, mediaType, content string) {
	s.c.t.Helper()
	r := s.call("sandbox_fs:read", args{"path": path})
	if !r.Success || len(r.Files) != 1 {
		s.c.t.Fatalf("%s: got %+v", path, r)
	}
	f := r.Files[0]
	got, err := s.c.bus.GetArtifact(natstest.Context(s.c.t), f.Ref)
	if err != nil || string(got) != content || f.Check() != nil || !f.In(s.ref) ||
		f.MediaType != mediaType || f.Bytes != int64(len(content)) {
		s.c.t.Errorf("%s: got %+v, %d bytes, %v", path, f, len(got), err)
	}
}

func TestPicturesAreShownByWhatTheyContain(t *testing.T) {
	s := start(t, sandbox.Config{Warm: -1}).session("s")
	const png, pdf = "\x89PNG\r\n\x1a\n\x00\xff", "%PDF-1.4\nplain"
	s.python(`import os
for name, data in {'plot.txt': b'\x89PNG\r\n\x1a\n\x00\xff', 'paper': b'%PDF-1.4\nplain', 'j': b'\xff\xd8\xff\xe0',
        'g': b'GIF89a\x01', 'w': b'RIFF\x04\x00\x00\x00WEBPVP8 ', 'fake.png': b'only text',
        'b.bin': b'\x00\x01'}.items():
    open(name, 'wb').write(data)
os.symlink('plot.txt', 'inside')
os.symlink('/usr/share/pixmaps/logo.png', 'outside')
with open('large', 'wb') as f:
    f.write(b'\x89PNG\r\n\x1a\n')
    f.truncate((10 << 20) + 1)`)
	s.shown("plot.txt", "image/png", png)
	s.shown("/workspace/inside", "image/png", png)
	s.shown("paper", "application/pdf", pdf)
	s.shown("j", "image/jpeg", "\xff\xd8\xff\xe0")
	s.shown("g", "image/gif", "GIF89a\x01")
	s.shown("w", "image/webp", "RIFF\x04\x00\x00\x00WEBPVP8 ")
	if f := s.fs("read", args{"path": "fake.png"}); f.Content != "only text" || f.Ref != "" {
		t.Errorf("a text is %+v", f)
	}
	if f := s.fs("read", args{"path": "plot.txt", "encoding": "base64"}); f.Content != "iVBORw0KGgoA/w==" || f.Ref != "" {
		t.Errorf("as base64 it is %+v", f)
	}
	s.refused("outside", "read", args{"path": "outside"})
	for path, want := range map[string]string{"large": "10485761 bytes", "b.bin": "not a UTF-8 text"} {
		if r := s.call("sandbox_fs:read", args{"path": path}); r.Success || len(r.Files) > 0 ||
			!strings.Contains(r.Error.Message, want) {
			t.Errorf("%s: got %+v", path, r)
		}
	}
}

// A picture that a program drew reaches the model of a provider, over its own protocol.
func TestAModelSeesThePictureOfAResult(t *testing.T) {
	c := start(t, sandbox.Config{Warm: -1})
	s := c.session("s")
	red := providertest.Picture(t, "red.png", color.RGBA{R: 255, A: 255})
	s.python(fmt.Sprintf("open('out/red.png', 'wb').write(bytes.fromhex('%x'))", red.Data))
	r := s.call("sandbox_fs:read", args{"path": "out/red.png"})

	chat, err := openai.New(openai.Config{BaseURL: openaitest.New(t).URL, APIKey: openaitest.Key, Model: openaitest.Model})
	if err != nil {
		t.Fatal(err)
	}
	claude, err := anthropic.New(anthropic.Config{
		BaseURL: anthropictest.New(t).URL, APIKey: anthropictest.Key, Model: anthropictest.Model,
	})
	if err != nil {
		t.Fatal(err)
	}
	at := c.provider(chat, claude)
	for _, a := range []provider.Adapter{chat, claude} {
		name := a.Info().Name
		got := c.ask(at, name, contract.Message{Role: contract.RoleUser, Text: "call sandbox_fs:read {}"},
			contract.Message{Role: contract.RoleAssistant, ToolCalls: []contract.ToolCall{
				{ID: "c1", Tool: "sandbox_fs:read", Args: json.RawMessage(`{}`)},
			}},
			contract.Message{
				Role: contract.RoleTool, CallID: "c1", Tool: "sandbox_fs:read", Text: string(r.Data),
				Files: r.Files,
			})
		if got.Response == nil || !strings.Contains(got.Response.TextContent, scripted.Saw(red)) {
			t.Errorf("%s: the model answers %+v, want %q in it", name, got, scripted.Saw(red))
		}
	}
}

// provider starts a provider service on the bus.
func (c *core) provider(adapters ...provider.Adapter) subject.Instance {
	c.t.Helper()
	b := natstest.Dial(c.t, bus.Config{InProcess: c.server, Name: "provider"})
	sub, err := c.bus.Conn().SubscribeSync(subject.Announce(subject.Provider, b.Instance()))
	if err == nil {
		err = c.bus.Conn().Flush()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- provider.Serve(ctx, provider.Config{DrainTimeout: 10 * time.Millisecond}, adapters,
			provider.Deps{Bus: b, Logger: natstest.Logger(c.t)})
	}()
	c.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("the provider ended with %v", err)
		}
	})
	if _, err := sub.NextMsg(natstest.Patience); err != nil {
		c.t.Fatalf("no announcement of the provider: %v", err)
	}
	return b.Instance()
}

// ask asks a provider, as core does, in the session main/s.
func (c *core) ask(at subject.Instance, name string, talk ...contract.Message) executor.Answer {
	c.t.Helper()
	r := executor.Request{
		Op: executor.OpRun, Agent: "main", Session: "s", Call: "t1-" + name, Attempt: "n", Provider: name,
		StartBy: time.Now().Add(executor.StartWithin), NotAfter: time.Now().Add(natstest.Patience),
		Model: &contract.Request{},
	}
	for _, m := range talk {
		raw, err := json.Marshal(m)
		if err != nil {
			c.t.Fatal(err)
		}
		r.Model.Messages = append(r.Model.Messages, raw)
	}
	body, err := json.Marshal(r)
	if err != nil {
		c.t.Fatal(err)
	}
	final := make(chan executor.Answer, 1)
	cancel, err := c.caller.Send(natstest.Context(c.t), subject.Executor(subject.Provider, at), string(at), nil, body,
		func(m bus.Reply) {
			var a executor.Answer
			if err := json.Unmarshal(m.Data, &a); err != nil || m.Err != nil {
				c.t.Errorf("got %+v (%v)", m, err)
			}
			if a.State.Final() {
				final <- a
			}
		})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cancel)
	select {
	case a := <-final:
		return a
	case <-time.After(natstest.Patience):
		c.t.Fatal("no answer")
		return executor.Answer{}
	}
}
