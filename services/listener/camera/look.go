package camera

import (
	"context"
	"encoding/json"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/senses"
)

const (
	// maxLooks is how many requests for pictures are answered at a time.
	maxLooks = 8
	// lookWait is how long a request without a deadline waits for the next picture.
	lookWait = 10 * time.Second
)

// keep keeps the last picture.
func (l *Listener) keep(p picture) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frame, l.at, l.came = p.jpeg, p.at, time.Now()
	close(l.fresh)
	l.fresh = make(chan struct{})
}

// forget drops the last picture: the camera is not there any more.
func (l *Listener) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frame, l.came = nil, time.Time{}
}

// look answers a request for a picture, if it is for this camera.
func (l *Listener) look(q *bus.Request) {
	var req senses.LookRequest
	if err := json.Unmarshal(q.Data, &req); err != nil || req.Camera != l.name {
		return // another one's
	}
	coreapi.Answer(q, func(q *bus.Request) (any, error) {
		if ref := l.Ref(); req.Agent != ref.Agent {
			return nil, bus.Errorf(bus.CodeDenied, "camera %s belongs to agent %s", l.name, ref.Agent)
		}
		return l.take(q.Context())
	})
}

// refuses says why no picture is taken: the camera is switched off, or its source is not read.
func (l *Listener) refuses(verb string) error {
	switch why := l.Off(); {
	case why == "":
		return nil
	case l.Media().On:
		return bus.Errorf(bus.CodeUnavailable, "camera %s has no picture: %s", l.name, why)
	default:
		return bus.Errorf(bus.CodeDenied, "camera %s %s off: %s", l.name, verb, why)
	}
}

// take returns the next picture.
func (l *Listener) take(ctx context.Context) (senses.Picture, error) {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	if err := l.refuses("is"); err != nil {
		return senses.Picture{}, err
	}
	l.mu.Lock()
	fresh := l.fresh
	l.mu.Unlock()
	select {
	case <-fresh:
	case <-ctx.Done():
		reason := l.Health().Reason
		if reason == "" {
			reason = "it has sent no picture in time"
		}
		return senses.Picture{}, bus.Errorf(bus.CodeUnavailable, "camera %s has no picture: %s", l.name, reason)
	}
	if err := l.Settle(ctx); err != nil {
		return senses.Picture{}, bus.Errorf(bus.CodeUnavailable, "camera %s cannot find out whether it was switched off; try again", l.name)
	}
	l.mu.Lock()
	frame, at := l.frame, l.at
	l.mu.Unlock()
	if err := l.refuses("was switched"); err != nil {
		return senses.Picture{}, err
	}
	if frame == nil {
		return senses.Picture{}, bus.Errorf(bus.CodeUnavailable, "camera %s has no picture any more: its source has ended", l.name)
	}
	jpeg, err := shown(frame, l.cfg.Masks)
	if err != nil {
		return senses.Picture{}, err
	}
	return senses.Picture{Camera: l.name, JPEG: jpeg, At: at.UTC()}, nil
}
