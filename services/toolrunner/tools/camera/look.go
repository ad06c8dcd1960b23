package camera

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/toolrunner/tools"
)

// The times of a call.
const (
	timeout  = 30 * time.Second
	lookWait = 12 * time.Second // for a picture of a camera that was named
	pageWait = 2 * time.Second  // for one of the page, if no camera was named
)

type arguments struct {
	Camera string `json:"camera"`
}

// seen is the data of a result.
type seen struct {
	Camera    subject.Writer `json:"camera"`
	At        time.Time      `json:"at"` // when the picture was taken
	Size      int64          `json:"size"`
	MediaType string         `json:"media_type"`
	Ref       string         `json:"ref"` // of the artifact
	Note      string         `json:"note"`
}

// Looker takes pictures.
type Looker struct {
	bus    *journal.Journal
	caller *bus.Caller
}

// New returns a looker. Call Close when it is no longer needed.
func New(j *journal.Journal) (*Looker, error) {
	caller, err := j.NewCaller()
	if err != nil {
		return nil, fmt.Errorf("asking cameras: %w", err)
	}
	return &Looker{j, caller}, nil
}

// Close ends it.
func (l *Looker) Close() { _ = l.caller.Close() }

// Tool returns camera:look.
func (l *Looker) Tool() tools.Tool {
	return tools.New(tool.Spec{
		Name: "camera:look",
		Description: "Takes a picture with a camera now, and shows it. Without a name it is the camera that the user shares " +
			"on the page, or else the only one. Use it when you are asked what a camera sees.",
		Args: json.RawMessage(`{"type":"object","properties":{
			"camera":{"type":"string","pattern":"^[A-Za-z0-9_-]{1,64}$",
				"description":"name of a camera; page is the one that the user shares on the page"}},
			"additionalProperties":false}`),
		Idempotent: true, Risk: tool.RiskMedium, Permissions: []string{"camera.look"}, Scope: []string{"camera"},
		ScenarioTags: []string{"information_retrieval"}, TimeoutMS: timeout.Milliseconds(),
	}, l.look)
}

func (l *Looker) look(ctx context.Context, c tools.Call, a arguments) tool.Result {
	p, err := l.picture(ctx, c, subject.Writer(a.Camera))
	if err != nil {
		return tools.Fail(err)
	}
	name := fmt.Sprintf("%s-%s.jpg", p.Camera, p.At.UTC().Format("20060102T150405Z"))
	shown, err := result.Shown(c.Prefix(), name, p.JPEG)
	if err != nil || len(p.JPEG) > senses.MaxFrameBytes || shown.MediaType != "image/jpeg" {
		return tools.Fail(fmt.Errorf("camera %s has sent no JPEG of at most %d bytes", p.Camera, senses.MaxFrameBytes))
	}
	if err := c.Store.PutArtifact(ctx, shown.Ref, p.JPEG); err != nil {
		return tools.Fail(fmt.Errorf("storing the picture: %w; try again", err))
	}
	r := tool.OK(seen{p.Camera, p.At, shown.Bytes, shown.MediaType, shown.Ref, result.ShownNote})
	r.Files = []provider.File{shown}
	return r
}

// picture takes a picture with the camera, or with the one that is meant without a name.
func (l *Looker) picture(ctx context.Context, c tools.Call, name subject.Writer) (senses.Picture, error) {
	listed, err := l.cameras(ctx, c.Agent)
	cameras := slices.Collect(maps.Keys(listed))
	slices.Sort(cameras)
	if err != nil {
		return senses.Picture{}, fmt.Errorf("listing the cameras: %w; try again", err)
	}
	page, err := senses.SharingOf(ctx, l.bus, subject.Ref{Agent: c.Agent, Session: c.Session})
	if err != nil {
		return senses.Picture{}, fmt.Errorf("reading the switches of the cameras: %w; try again", err)
	}
	switch {
	case name == senses.PageCamera && page.Off != "":
		return senses.Picture{}, errors.New(page.Off)
	case name == senses.PageCamera:
		p, err := l.ask(ctx, c, name, lookWait)
		if away(err) {
			err = errors.New("nobody shares a camera with this session on the page; ask the user to share one" + others(cameras))
		}
		return p, err
	case name == "":
		return l.meant(ctx, c, cameras, listed, page.Off)
	case !slices.Contains(cameras, name):
		return senses.Picture{}, fmt.Errorf("no camera %q%s; page is the one that the user shares on the page", name, others(cameras))
	}
	return l.own(ctx, c, name, listed[name])
}

// own takes a picture with a camera of the agent, unless people have switched it off: a process that does
// not know it yet could answer.
func (l *Looker) own(ctx context.Context, c tools.Call, name subject.Writer, s *senses.Switch) (senses.Picture, error) {
	if s != nil && !s.On {
		return senses.Picture{}, bus.Errorf(bus.CodeDenied, "camera %s is off: %s", name, s)
	}
	return l.ask(ctx, c, name, lookWait)
}

// meant takes a picture with the camera of the page, unless that is off, or with the only other one.
func (l *Looker) meant(
	ctx context.Context, c tools.Call, cameras []subject.Writer, listed map[subject.Writer]*senses.Switch, off string,
) (p senses.Picture, err error) {
	type answer struct {
		p   senses.Picture
		err error
	}
	only := make(chan answer, 1)
	if len(cameras) == 1 {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // the picture of the page was there first
		go func() {
			p, err := l.own(ctx, c, cameras[0], listed[cameras[0]])
			only <- answer{p, err}
		}()
	}
	if off == "" {
		p, err = l.ask(ctx, c, senses.PageCamera, pageWait)
	}
	switch {
	case off == "" && !away(err):
		return p, err
	case len(cameras) == 1:
		a := <-only
		return a.p, a.err
	case len(cameras) == 0 && off != "":
		return p, errors.New(off)
	case len(cameras) == 0:
		return p, errors.New("there is no camera: no camera listener runs for this agent, and nobody shares a camera with this " +
			"session on the page; ask the user to share one")
	}
	return p, errors.New("there are several cameras; name one" + others(cameras))
}

// away reports whether nobody has answered for a camera.
func away(err error) bool {
	return errors.Is(err, bus.ErrUnavailable) || errors.Is(err, bus.ErrTimeout)
}

func others(cameras []subject.Writer) string {
	if len(cameras) == 0 {
		return ""
	}
	var names []string
	for _, c := range cameras {
		names = append(names, string(c))
	}
	return "; the cameras are " + strings.Join(names, ", ")
}

// cameras lists the camera listeners of the agent, with their switches. Several processes may have one.
func (l *Looker) cameras(ctx context.Context, agent subject.Agent) (map[subject.Writer]*senses.Switch, error) {
	out := map[subject.Writer]*senses.Switch{}
	all, err := senses.List(ctx, l.bus)
	for _, r := range all {
		if r.Media == senses.MediaCamera && r.Agent == agent {
			out[r.Listener] = r.Switch
		}
	}
	return out, err
}

// ask asks the process that has the camera.
func (l *Looker) ask(ctx context.Context, c tools.Call, name subject.Writer, wait time.Duration) (p senses.Picture, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	body, err := json.Marshal(senses.LookRequest{Agent: c.Agent, Session: c.Session, Camera: name})
	if err != nil {
		return p, err
	}
	reply, err := l.caller.Request(ctx, subject.Service(senses.CameraName, senses.VerbLook), senses.CameraName, body)
	if err != nil {
		if e, ok := errors.AsType[*bus.Error](err); ok && e.Message != "" {
			return p, e
		}
		return p, fmt.Errorf("camera %s does not answer: %w", name, err)
	}
	if err := json.Unmarshal(reply, &p); err != nil {
		return p, fmt.Errorf("reading the picture of camera %s: %w", name, err)
	}
	p.Camera = name
	return p, nil
}
