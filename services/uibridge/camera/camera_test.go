package camera_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/jpeg"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge/camera"
	"skandha.dev/services/uibridge/contract"
)

// rig is a bridge's cameras, and a client of the bus.
type rig struct {
	t       *testing.T
	cameras *camera.Cameras
	mux     *http.ServeMux
	bus     *journal.Journal
	caller  *bus.Caller
	frames  chan *nats.Msg
}

func start(t *testing.T) *rig {
	t.Helper()
	srv := natstest.Start(t)
	here, there := natstest.Connect(t, srv), natstest.Connect(t, srv)
	natstest.EnsureStreams(t, there)
	r := &rig{t: t, cameras: camera.New(here, slog.New(slog.DiscardHandler)), mux: http.NewServeMux(), bus: there, frames: make(chan *nats.Msg, 10)}
	r.mux.Handle(camera.Path, r.cameras)
	stop, err := r.cameras.Answer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if r.caller, err = there.NewCaller(); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Conn().ChanSubscribe("media.frame.*.*", r.frames); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*nats.Conn{there.Conn(), here.Conn()} {
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func picture(t *testing.T, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, width, height)), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// talker may talk to the agent main.
var talker = contract.Principal{Name: "p", Rights: []contract.Right{contract.Talk}, Agents: []subject.Agent{"main"}}

func (r *rig) do(method, path, kind string, body []byte, p contract.Principal) *httptest.ResponseRecorder {
	q := httptest.NewRequestWithContext(contract.WithPrincipal(r.t.Context(), p), method, path, bytes.NewReader(body))
	q.Header.Set("Content-Type", kind)
	w := httptest.NewRecorder()
	r.mux.ServeHTTP(w, q)
	return w
}

const path = "/v1/agents/main/sessions/kitchen/camera"

func (r *rig) share(body []byte) {
	r.t.Helper()
	if w := r.do(http.MethodPost, path, "image/jpeg", body, talker); w.Code != http.StatusNoContent {
		r.t.Fatalf("%d %s", w.Code, w.Body)
	}
}

func (r *rig) look(ctx context.Context, q senses.LookRequest) (p senses.Picture, err error) {
	r.t.Helper()
	body, err := json.Marshal(q)
	if err != nil {
		r.t.Fatal(err)
	}
	raw, err := r.caller.Request(ctx, subject.Service(senses.CameraName, senses.VerbLook), senses.CameraName, body)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(raw, &p)
}

func TestASharedPictureIsPublishedAndShown(t *testing.T) {
	r := start(t)
	first, second := picture(t, 32, 24), picture(t, 64, 48)
	r.share(first)
	r.share(second)
	for _, want := range [][]byte{first, second} {
		if m := <-r.frames; m.Subject != "media.frame.main.kitchen" || !bytes.Equal(m.Data, want) {
			t.Errorf("%s: %d bytes", m.Subject, len(m.Data))
		}
	}
	p, err := r.look(natstest.Context(t), senses.LookRequest{Agent: "main", Session: "kitchen", Camera: senses.PageCamera})
	if err != nil || p.Camera != senses.PageCamera || !bytes.Equal(p.JPEG, second) || time.Since(p.At) > natstest.Patience {
		t.Errorf("%+v, %v", p.Camera, err)
	}
}

// What people have decided about the listener that watches the camera holds for all who look.
func TestTheMasksAndTheSwitchOfAListenerHold(t *testing.T) {
	r := start(t)
	ctx, white := natstest.Context(t), image.NewGray(image.Rect(0, 0, 64, 48))
	for i := range white.Pix {
		white.Pix[i] = 255
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, white, nil); err != nil {
		t.Fatal(err)
	}
	w := senses.Watcher{Agent: "main", Session: "kitchen", Masks: []senses.Mask{{Width: 0.5, Height: 1}}}
	if err := senses.PutWatcher(ctx, r.bus, "desk", &w); err != nil {
		t.Fatal(err)
	}
	r.share(b.Bytes())
	ask := senses.LookRequest{Agent: "main", Session: "kitchen", Camera: senses.PageCamera}
	p, err := r.look(ctx, ask)
	if err != nil {
		t.Fatal(err)
	}
	img, err := jpeg.Decode(bytes.NewReader(p.JPEG))
	if err != nil {
		t.Fatal(err)
	}
	left, _, _, _ := img.At(10, 24).RGBA()
	right, _, _, _ := img.At(54, 24).RGBA()
	if left > 0x1000 || right < 0xF000 {
		t.Errorf("the left is %x, the right %x, want black and white", left, right)
	}

	<-r.frames
	if _, err := senses.Turn(ctx, r.bus, "desk", false, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.look(ctx, ask); !errors.Is(err, bus.ErrDenied) || !strings.Contains(err.Error(), "camera desk is off: switched off by ann") {
		t.Errorf("the picture that came before: %v", err)
	}
	if w := r.do(http.MethodPost, path, "image/jpeg", b.Bytes(), talker); w.Code != http.StatusConflict ||
		!strings.Contains(w.Body.String(), "camera desk is off: switched off by ann") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r.silent(ask)
	if m := <-r.frames; m.Subject != "media.frame.main.canary" {
		t.Errorf("%s was published while the camera was off", m.Subject)
	}
	if _, err := senses.Turn(ctx, r.bus, "desk", true, "ann"); err != nil {
		t.Fatal(err)
	}
	r.share(b.Bytes())
	if _, err := r.look(ctx, ask); err != nil {
		t.Errorf("it is on again: %v", err)
	}
}

func TestWhileItIsUnknownWhetherACameraIsOffNobodySees(t *testing.T) {
	r := start(t)
	r.share(picture(t, 32, 24))
	if err := r.bus.JetStream().DeleteStream(natstest.Context(t), "KV_listeners"); err != nil {
		t.Fatal(err)
	}
	ask := senses.LookRequest{Agent: "main", Session: "kitchen", Camera: senses.PageCamera}
	if _, err := r.look(natstest.Context(t), ask); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("%v, want unavailable", err)
	}
	if w := r.do(http.MethodPost, path, "image/jpeg", picture(t, 32, 24), talker); w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), "unknown whether the camera is switched off") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Another process may have the camera, so that a bridge that has it not stays silent.
func TestWhoHasNoPictureStaysSilent(t *testing.T) {
	r := start(t)
	r.share(picture(t, 32, 24))
	for _, q := range []senses.LookRequest{
		{Agent: "main", Session: "kitchen", Camera: "porch"},
		{Agent: "main", Session: "cellar", Camera: senses.PageCamera},
		{Agent: "other", Session: "kitchen", Camera: senses.PageCamera},
	} {
		r.silent(q)
	}
	if w := r.do(http.MethodDelete, path, "", nil, talker); w.Code != http.StatusNoContent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r.silent(senses.LookRequest{Agent: "main", Session: "kitchen", Camera: senses.PageCamera})
}

// silent asks, and then for a picture that is there: who answers that was silent before.
func (r *rig) silent(q senses.LookRequest) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(natstest.Context(r.t))
	got := make(chan error, 1)
	go func() {
		_, err := r.look(ctx, q)
		got <- err
	}()
	r.answersAnother()
	cancel()
	if err := <-got; !errors.Is(err, bus.ErrCancelled) {
		r.t.Errorf("%+v: the error is %v", q, err)
	}
}

func (r *rig) answersAnother() {
	r.t.Helper()
	if w := r.do(http.MethodPost, "/v1/agents/main/sessions/canary/camera", "image/jpeg", picture(r.t, 32, 24), talker); w.Code != http.StatusNoContent &&
		w.Code != http.StatusTooManyRequests {
		r.t.Fatalf("%d %s", w.Code, w.Body)
	}
	if _, err := r.look(natstest.Context(r.t), senses.LookRequest{Agent: "main", Session: "canary", Camera: senses.PageCamera}); err != nil {
		r.t.Fatal(err)
	}
}

func TestPicturesThatAreRefused(t *testing.T) {
	r := start(t)
	good := picture(t, 32, 24)
	for i, c := range []struct {
		method, kind string
		body         []byte
		p            contract.Principal
		status       int
		says         string
	}{
		{http.MethodPost, "image/jpeg", good, contract.Principal{Name: "p", Rights: []contract.Right{contract.See}}, 403, `lacks the \"talk\" right`},
		{http.MethodPost, "image/jpeg", good, contract.Principal{Name: "p", Rights: talker.Rights, Agents: []subject.Agent{"other"}}, 403, "may not access"},
		{http.MethodGet, "image/jpeg", good, talker, 405, "want POST"},
		{http.MethodPost, "image/png", good, talker, 415, "want image/jpeg"},
		{http.MethodPost, "image/jpeg", nil, talker, 400, "not a JPEG"},
		{http.MethodPost, "image/jpeg", []byte("<svg/>"), talker, 400, "not a JPEG"},
		{http.MethodPost, "image/jpeg", good[:20], talker, 400, "not a JPEG"},
		{http.MethodPost, "image/jpeg", picture(t, 8, 8), talker, 400, "8 by 8 pixels"},
		{http.MethodPost, "image/jpeg", picture(t, 5000, 16), talker, 400, "5000 by 16 pixels"},
		{http.MethodPost, "image/jpeg", make([]byte, senses.MaxFrameBytes+1), talker, 413, "larger than 524288 bytes"},
	} {
		at := strings.Replace(path, "kitchen", "s"+string(rune('a'+i)), 1) // each has its own limit
		if w := r.do(c.method, at, c.kind, c.body, c.p); w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s, %d bytes: %d %s, want %d and %q", c.method, c.kind, len(c.body), w.Code, w.Body, c.status, c.says)
		}
	}
	if w := r.do(http.MethodPost, "/v1/agents/main/sessions/a.b/camera", "image/jpeg", good, talker); w.Code != 400 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	select {
	case m := <-r.frames:
		t.Errorf("%s was published", m.Subject)
	default:
	}
}

func TestTooManyPicturesAreRefused(t *testing.T) {
	r := start(t)
	good, refused := picture(t, 32, 24), 0
	for range 20 {
		if w := r.do(http.MethodPost, path, "image/jpeg", good, talker); w.Code == http.StatusTooManyRequests &&
			strings.Contains(w.Body.String(), "at most 4 a second") && w.Header().Get("Retry-After") != "" {
			refused++
		}
	}
	if refused == 0 {
		t.Error("20 pictures at once are accepted")
	}
}
