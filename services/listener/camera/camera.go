package camera

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/capture"
	"skandha.dev/services/listener/contract"
)

// maxRaw is the size of the largest picture of a child, in bytes.
const maxRaw = 4 << 20

// Deps are a listener's dependencies.
type Deps = capture.Deps

// Listener is a camera.
type Listener struct {
	*capture.Recorder

	name   subject.Writer
	cfg    Config
	bus    *journal.Journal
	now    func() time.Time
	looked *bus.Responder
	stated sync.WaitGroup
	quit   context.CancelFunc // ends stating

	mu    sync.Mutex
	frame []byte // the last one
	at    time.Time
	came  time.Time     // when the last one was received
	fresh chan struct{} // closed when there is another one
}

var _ contract.Sensing = (*Listener)(nil)

// New returns a listener and reads its password; an error names the field.
func New(name subject.Writer, cfg Config, deps Deps) (*Listener, error) {
	if _, err := subject.Parse[subject.Writer](string(name)); err != nil {
		return nil, err
	}
	if err := errors.Join(cfg.Validate(name), cfg.CheckSecrets()); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if deps.Now == nil {
		deps.Now = time.Now
	}
	l := &Listener{name: name, cfg: cfg, bus: deps.Bus, now: deps.Now, fresh: make(chan struct{}), quit: func() {}}
	sense := capture.Sense{Media: senses.MediaCamera, Read: l.readChild, Ends: cfg.Ends()}
	if cfg.Page {
		sense.Read = l.readPage
		sense.Idle = contract.Health{State: contract.StateOK, Reason: nobodyShares}
	}
	var err error
	l.Recorder, err = capture.New(name, cfg.Config, sense, deps)
	return l, err
}

// OnStart implements [contract.Listener].
func (l *Listener) OnStart(ctx context.Context, e contract.Emitter) error {
	if err := l.Recorder.OnStart(ctx, e); err != nil {
		return err
	}
	var state context.Context
	state, l.quit = context.WithCancel(context.WithoutCancel(ctx))
	l.stated.Go(func() { l.state(state) })
	var err error
	l.looked, err = l.bus.Respond(subject.Service(senses.CameraName, senses.VerbLook), "", senses.CameraName, l.look,
		bus.Concurrency(maxLooks))
	return err
}

// OnStop implements [contract.Listener].
func (l *Listener) OnStop(ctx context.Context) error {
	if l.looked != nil {
		l.looked.Stop()
	}
	l.quit()
	l.stated.Wait()
	return l.Recorder.OnStop(ctx)
}

// picture is one that was received.
type picture struct {
	jpeg []byte
	at   time.Time
}

// readChild reads the pictures of a child.
func (l *Listener) readChild(ctx context.Context) error {
	child, err := l.cfg.child()
	if err != nil {
		return err
	}
	began, n := l.now(), 0
	return l.watch(ctx, func(ctx context.Context, put func(picture)) error {
		return ffmpeg.Run(ctx, child, func(r io.Reader) error {
			s := newSplitter(r, maxRaw)
			for {
				jpeg, err := s.next()
				l.Stats().Unreadable.Add(int64(s.dropped))
				s.dropped = 0
				if err != nil {
					return err
				}
				at := l.now()
				if l.cfg.Fast { // the film's own time
					at = began.Add(time.Duration(float64(n) / l.cfg.FPS * float64(time.Second)))
				}
				n++
				put(picture{append([]byte(nil), jpeg...), at})
			}
		})
	})
}

// watch compares the pictures that receive puts, until it returns. If they come too fast, those in
// between are dropped, except those of a file.
func (l *Listener) watch(ctx context.Context, receive func(context.Context, func(picture)) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pictures, over := make(chan picture, 1), make(chan struct{})
	var done sync.WaitGroup
	t := newTracker(l.cfg.Motion, l.cfg.Masks)
	done.Go(func() { l.compare(t, pictures, over) })
	err := receive(ctx, func(p picture) { l.put(ctx, pictures, p) })
	close(over)
	done.Wait()
	if ctx.Err() == nil {
		l.perceive(t.end())
	}
	l.forget()
	return err
}

// put passes a picture on to be compared.
func (l *Listener) put(ctx context.Context, pictures chan picture, p picture) {
	if l.cfg.File == "" {
		select {
		case <-pictures:
			l.Stats().Unreadable.Add(1)
		default:
		}
	}
	select {
	case pictures <- p:
	case <-ctx.Done():
	}
}

// compare compares pictures until over is closed and none is left.
func (l *Listener) compare(t *tracker, pictures <-chan picture, over <-chan struct{}) {
	for {
		select {
		case p := <-pictures:
			l.see(t, p)
			continue
		case <-over:
		}
		select {
		case p := <-pictures:
			l.see(t, p)
		default:
			return
		}
	}
}

// see takes a picture.
func (l *Listener) see(t *tracker, p picture) {
	img, err := senses.Decode(p.jpeg)
	if err != nil {
		l.Stats().Unreadable.Add(1)
		return
	}
	l.Receiving()
	l.keep(p)
	if !l.cfg.Motion.Off {
		l.perceive(t.see(brightness(img), p.jpeg, p.at))
	}
}

// perceive passes events on.
func (l *Listener) perceive(events []event) {
	for _, e := range events {
		p := capture.Perception{
			At: e.began, Text: e.text(string(l.name)), Facts: map[string]any{"event": string(e.kind), "area": percent(e.area)},
		}
		for _, s := range e.shots {
			jpeg, err := shown(s.jpeg, l.cfg.Masks)
			if err != nil {
				l.Stats().Unreadable.Add(1)
				continue
			}
			p.Files = append(p.Files, capture.Recording{Type: "jpg", MediaType: "image/jpeg", Data: jpeg})
		}
		l.Perceive(p)
	}
}
