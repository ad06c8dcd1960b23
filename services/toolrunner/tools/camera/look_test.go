package camera_test

import (
	"bytes"
	"encoding/json"
	"image"
	"image/jpeg"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/camera"
)

type rig struct {
	t   *testing.T
	bus *journal.Journal
	tools.Tool
}

func newRig(t *testing.T) *rig {
	t.Helper()
	b := natstest.Connect(t, natstest.Start(t))
	natstest.EnsureStreams(t, b)
	l, err := camera.New(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return &rig{t, b, l.Tool()}
}

func picture(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 16, 16)), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// camera answers like a process with a camera, which reports it unless it is that of the page.
func (r *rig) camera(name subject.Writer, agent subject.Agent, data []byte, fault error) {
	r.t.Helper()
	there, err := r.bus.Respond(subject.Service(senses.CameraName, senses.VerbLook), "", senses.CameraName, func(q *bus.Request) {
		var req senses.LookRequest
		if json.Unmarshal(q.Data, &req) != nil || req.Camera != name {
			return
		}
		coreapi.Answer(q, func(*bus.Request) (any, error) {
			return senses.Picture{Camera: name, JPEG: data, At: time.Now()}, fault
		})
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(there.Stop)
	if name != senses.PageCamera {
		report := senses.Report{Listener: name, Kind: "camera", State: "ok", Media: senses.MediaCamera, On: true, Agent: agent}
		if err := senses.Put(natstest.Context(r.t), r.bus, report); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) look(args string) tool.Result {
	return r.Run(natstest.Context(r.t), tools.Call{
		Agent: "main", Session: "s", ID: "t1-p1-c0", Attempt: "a", Args: json.RawMessage(args), Store: r.bus,
	})
}

func (r *rig) sees(args string, want subject.Writer) {
	r.t.Helper()
	got := r.look(args)
	if got.Error != nil || len(got.Files) != 1 || !strings.Contains(string(got.Data), `"camera":"`+string(want)+`"`) {
		r.t.Fatalf("%+v, want a picture of %s", got, want)
	}
	f := got.Files[0]
	data, err := r.bus.GetArtifact(natstest.Context(r.t), f.Ref)
	if err != nil || f.MediaType != "image/jpeg" || int64(len(data)) != f.Bytes ||
		!f.In(subject.Ref{Agent: "main", Session: "s"}) {
		r.t.Errorf("%+v: %v", f, err)
	}
}

func (r *rig) fails(args string, want ...string) {
	r.t.Helper()
	got := r.look(args)
	for _, w := range want {
		if got.Error == nil || !strings.Contains(got.Error.Message, w) {
			r.t.Errorf("%s: %+v, want %q", args, got.Error, w)
		}
	}
}

func TestTheOnlyCameraIsMeant(t *testing.T) {
	r := newRig(t)
	r.fails(`{}`, "there is no camera", "ask the user to share one")
	r.camera("yard", "main", picture(t), nil)
	r.camera("cellar", "other", picture(t), nil) // not this agent's
	r.sees(`{}`, "yard")
	r.sees(`{"camera":"yard"}`, "yard")
	r.fails(`{"camera":"cellar"}`, `no camera "cellar"; the cameras are yard`)
}

func TestTheCameraOfThePageComesFirst(t *testing.T) {
	r := newRig(t)
	r.camera("yard", "main", picture(t), nil)
	r.camera("hall", "main", picture(t), nil)
	r.fails(`{}`, "there are several cameras; name one; the cameras are hall, yard")
	r.camera(senses.PageCamera, "", picture(t), nil)
	r.sees(`{}`, senses.PageCamera)
	r.sees(`{"camera":"page"}`, senses.PageCamera)
	r.sees(`{"camera":"hall"}`, "hall")
}

func TestACameraThatIsOffSaysByWhom(t *testing.T) {
	r := newRig(t)
	r.camera("yard", "main", nil, bus.Errorf(bus.CodeDenied, "camera yard is off: switched off by ann"))
	r.fails(`{}`, "camera yard is off: switched off by ann")
	r.fails(`{"camera":"yard"}`, "camera yard is off: switched off by ann")
}

func TestACameraOfThePageThatIsOffIsNotAsked(t *testing.T) {
	r := newRig(t)
	r.camera(senses.PageCamera, "", picture(t), nil)
	w := senses.Watcher{Agent: "main", Session: "s"}
	if err := senses.PutWatcher(natstest.Context(t), r.bus, "desk", &w); err != nil {
		t.Fatal(err)
	}
	r.sees(`{}`, senses.PageCamera)
	if _, err := senses.Turn(natstest.Context(t), r.bus, "desk", false, "ann"); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{`{}`, `{"camera":"page"}`} {
		r.fails(args, "camera desk is off: switched off by ann")
	}
	r.camera("yard", "main", picture(t), nil) // is another one
	r.sees(`{}`, "yard")
}

func TestWhatIsNoPictureIsRefused(t *testing.T) {
	for _, data := range [][]byte{nil, []byte("<svg/>"), append(picture(t), make([]byte, senses.MaxFrameBytes)...)} {
		r := newRig(t)
		r.camera("yard", "main", data, nil)
		r.fails(`{"camera":"yard"}`, "has sent no JPEG")
	}
}

// The switch counts, whichever process would still answer.
func TestACameraThatIsSwitchedOffIsNotAsked(t *testing.T) {
	r := newRig(t)
	r.camera("yard", "main", picture(t), nil)
	if _, err := senses.Turn(natstest.Context(t), r.bus, "yard", false, "ann"); err != nil {
		t.Fatal(err)
	}
	const why = "camera yard is off: switched off by ann at 2"
	r.fails(`{}`, why)
	r.fails(`{"camera":"yard"}`, why)
	if _, err := senses.Turn(natstest.Context(t), r.bus, "yard", true, "ann"); err != nil {
		t.Fatal(err)
	}
	r.sees(`{"camera":"yard"}`, "yard")
}

func TestACameraOfTwoProcessesIsOneCamera(t *testing.T) {
	r := newRig(t)
	r.camera("yard", "main", picture(t), nil)
	second := senses.Report{
		Listener: "yard", Kind: "camera", State: "ok", Instance: "second", Media: senses.MediaCamera, On: true, Agent: "main",
	}
	if err := senses.Put(natstest.Context(t), r.bus, second); err != nil {
		t.Fatal(err)
	}
	r.sees(`{}`, "yard")
}
