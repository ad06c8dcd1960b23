package camera

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/jpeg"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// Fresh is how long a picture is shown after it came.
const Fresh = 5 * time.Second

// The limits of what is accepted.
const (
	perSecond   = 4 // pictures of a session
	burst       = 4
	maxSessions = 256 // that have a picture at a time, of up to senses.MaxFrameBytes
	minSide     = 16  // pixels
	maxSide     = 4096
	maxLooks    = 8 // requests for pictures that are answered at a time
)

// switchWait is how long the bus has to say whether a camera is switched off.
const switchWait = 3 * time.Second

// Path is where the handler is served.
const Path = "/v1/agents/{agent}/sessions/{session}/camera"

// Serves reports whether the handler is served at a path.
func Serves(path string) bool {
	part := strings.Split(path, "/")
	return len(part) == 7 && part[2] == "agents" && part[4] == "sessions" && part[6] == "camera"
}

// Cameras keeps the pictures. It is safe for concurrent use.
type Cameras struct {
	bus *journal.Journal
	log *slog.Logger

	mu     sync.Mutex
	shared map[subject.Ref]*shared
}

// shared is the camera of one session.
type shared struct {
	limit *rate.Limiter
	jpeg  []byte
	at    time.Time
}

// New returns a handler without pictures.
func New(b *journal.Journal, log *slog.Logger) *Cameras {
	return &Cameras{bus: b, log: log.With("transport", "camera"), shared: map[subject.Ref]*shared{}}
}

// Answer answers requests for pictures over the bus until stop is called.
func (c *Cameras) Answer() (stop func(), err error) {
	r, err := c.bus.Respond(subject.Service(senses.CameraName, senses.VerbLook), "", senses.CameraName, c.look,
		bus.Concurrency(maxLooks))
	if err != nil {
		return nil, fmt.Errorf("answering for the page's cameras: %w", err)
	}
	return r.Stop, nil
}

// look answers a request for a picture that is here. That alone says which process has the camera, so
// that a request that cannot be read is not answered, either.
func (c *Cameras) look(q *bus.Request) {
	var r senses.LookRequest
	if strictjson.Unmarshal(q.Data, &r) != nil || r.Camera != senses.PageCamera {
		return
	}
	picture, ok := c.latest(subject.Ref{Agent: r.Agent, Session: r.Session}, time.Now())
	if !ok {
		return
	}
	coreapi.Answer(q, func(q *bus.Request) (any, error) {
		is, err := c.sharing(q.Context(), subject.Ref{Agent: r.Agent, Session: r.Session})
		if err == nil && is.Off != "" {
			err = bus.Errorf(bus.CodeDenied, "%s", is.Off)
		}
		if err == nil {
			picture.JPEG, err = senses.Masked(picture.JPEG, is.Masks)
		}
		if err != nil {
			c.log.Warn("a request for a picture is refused", "agent", string(r.Agent), "session", string(r.Session), "error", err)
			return nil, err
		}
		return picture, nil
	})
}

// sharing reads what camera listeners say about the camera of a session.
func (c *Cameras) sharing(ctx context.Context, ref subject.Ref) (senses.Sharing, error) {
	ctx, cancel := context.WithTimeout(ctx, switchWait)
	defer cancel()
	is, err := senses.SharingOf(ctx, c.bus, ref)
	if err != nil {
		c.log.Debug("reading the switches of cameras failed", "session", ref, "error", err)
		return is, bus.Errorf(bus.CodeUnavailable, "it is unknown whether the camera is switched off; try again")
	}
	return is, nil
}

func (c *Cameras) latest(ref subject.Ref, now time.Time) (senses.Picture, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shared[ref]
	if s == nil || s.jpeg == nil || now.Sub(s.at) > Fresh {
		return senses.Picture{}, false
	}
	return senses.Picture{Camera: senses.PageCamera, JPEG: s.jpeg, At: s.at.UTC()}, true
}

// Counters returns the metrics.
func (c *Cameras) Counters() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(time.Now())
	return map[string]int64{"cameras": int64(len(c.shared))}
}

// ServeHTTP implements [http.Handler], at [Path] and behind the access layer.
func (c *Cameras) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ref, err := request.Ref(r.PathValue("agent"), r.PathValue("session"))
	if err == nil {
		err = contract.PrincipalOf(r.Context()).Require(contract.Talk, ref.Agent)
	}
	status := 0
	if err == nil {
		switch r.Method {
		case http.MethodPost:
			status, err = c.post(w, r, ref)
		case http.MethodDelete:
			c.forget(ref)
		default:
			w.Header().Set("Allow", "POST, DELETE")
			status = http.StatusMethodNotAllowed
			err = contract.Invalid("method", "want POST with a picture, or DELETE to stop sharing")
		}
	}
	if err != nil {
		request.Refuse(w, err, status)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// post takes one picture. An error may come with an HTTP status.
func (c *Cameras) post(w http.ResponseWriter, r *http.Request, ref subject.Ref) (status int, err error) {
	if err := c.admit(ref, time.Now()); err != nil {
		return 0, err
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "image/jpeg" {
		return http.StatusUnsupportedMediaType, contract.Invalid("Content-Type", "want image/jpeg")
	}
	picture, err := io.ReadAll(http.MaxBytesReader(w, r.Body, senses.MaxFrameBytes))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return 0, &contract.Error{
			Code: contract.CodeTooLarge, Field: "body",
			Message: fmt.Sprintf("larger than %d bytes; send a smaller picture, or one of lower quality", senses.MaxFrameBytes),
		}
	case err != nil:
		return 0, contract.Invalid("body", "incomplete")
	}
	if err := check(picture); err != nil {
		return 0, err
	}
	switch is, err := c.sharing(r.Context(), ref); {
	case err != nil:
		c.keep(ref, nil, time.Now())
		return 0, &contract.Error{Code: contract.CodeUnavailable, Message: err.Error(), RetryAfterMS: 1000}
	case is.Off != "":
		c.keep(ref, nil, time.Now())
		return 0, &contract.Error{Code: contract.CodeConflict, Message: is.Off}
	}
	c.keep(ref, picture, time.Now())
	if err := c.bus.Conn().Publish(ref.Frame(), picture); err != nil {
		c.log.Debug("publishing a picture failed", "session", ref, "error", err) // the next one follows
	}
	return 0, nil
}

func check(picture []byte) error {
	size, err := jpeg.DecodeConfig(bytes.NewReader(picture))
	if err != nil {
		return contract.Invalid("body", "not a JPEG")
	}
	for _, side := range []int{size.Width, size.Height} {
		if side < minSide || side > maxSide {
			return contract.Invalid("body", fmt.Sprintf("the picture has %d by %d pixels, want %d to %d on each side", size.Width,
				size.Height, minSide, maxSide))
		}
	}
	return nil
}

// admit counts a picture of a session against its limit.
func (c *Cameras) admit(ref subject.Ref, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep(now)
	s := c.shared[ref]
	if s == nil {
		if len(c.shared) >= maxSessions {
			return &contract.Error{
				Code: contract.CodeRateLimited, RetryAfterMS: Fresh.Milliseconds(),
				Message: fmt.Sprintf("%d cameras are shared, which is the limit of a bridge; try again later", maxSessions),
			}
		}
		s = &shared{limit: rate.NewLimiter(perSecond, burst)}
		c.shared[ref] = s
	}
	s.at = now
	if !s.limit.AllowN(now, 1) {
		return &contract.Error{
			Code: contract.CodeRateLimited, RetryAfterMS: 1000,
			Message: fmt.Sprintf("too many pictures; send at most %d a second", perSecond),
		}
	}
	return nil
}

func (c *Cameras) keep(ref subject.Ref, picture []byte, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.shared[ref]; s != nil { // else sharing ended meanwhile
		s.jpeg, s.at = picture, now
	}
}

func (c *Cameras) forget(ref subject.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.shared, ref)
}

// sweep forgets what is not fresh.
func (c *Cameras) sweep(now time.Time) {
	for ref, s := range c.shared {
		if now.Sub(s.at) > Fresh {
			delete(c.shared, ref)
		}
	}
}
