package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Hello is the first line of an engine's program.
type Hello struct {
	Version string `json:"version,omitempty"`
	Durable string `json:"durable,omitempty"` // how a step is made durable
	Missing string `json:"missing,omitempty"` // why the engine cannot be measured here
}

// Request asks for turns in new sessions: Turns in each of Sessions sessions, all sessions at once.
type Request struct {
	Sessions int `json:"sessions"`
	Turns    int `json:"turns"`
}

// Answer has how long each turn took, and all of them. Making the sessions is not part of it.
type Answer struct {
	Took  []time.Duration `json:"took_ns"`
	Total time.Duration   `json:"total_ns"`
	Error string          `json:"error,omitempty"`
}

// Session runs one turn after another.
type Session interface {
	Turn(ctx context.Context) error
	Close()
}

// Serve answers requests until the end of the input, which also ends the turns that are running. A failed turn is an
// answer; the error is of the pipe.
func Serve(
	ctx context.Context, hello Hello, in io.Reader, out io.Writer, open func(context.Context) (Session, error),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests, ended := make(chan Request), make(chan error, 1)
	go func() {
		defer cancel()
		for lines := json.NewDecoder(in); ; {
			var r Request
			if err := lines.Decode(&r); err != nil {
				ended <- err
				return
			}
			requests <- r
		}
	}()
	answers := json.NewEncoder(out)
	if err := answers.Encode(hello); err != nil {
		return err
	}
	for {
		select {
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading a request: %w", err)
		case r := <-requests:
			a, err := run(ctx, r, open)
			if err != nil {
				a = Answer{Error: err.Error()}
			}
			if err := answers.Encode(a); err != nil {
				return err
			}
		}
	}
}

func run(ctx context.Context, r Request, open func(context.Context) (Session, error)) (Answer, error) {
	sessions := make([]Session, r.Sessions)
	for i := range sessions {
		s, err := open(ctx)
		if err != nil {
			return Answer{}, fmt.Errorf("opening a session: %w", err)
		}
		defer s.Close()
		sessions[i] = s
	}
	a, errs := Answer{Took: make([]time.Duration, r.Sessions*r.Turns)}, make([]error, r.Sessions)
	var wg sync.WaitGroup
	begin := time.Now()
	for i, s := range sessions {
		wg.Go(func() {
			for k := range r.Turns {
				turn := time.Now()
				if errs[i] = s.Turn(ctx); errs[i] != nil {
					return
				}
				a.Took[i*r.Turns+k] = time.Since(turn)
			}
		})
	}
	wg.Wait()
	a.Total = time.Since(begin)
	return a, errors.Join(errs...)
}
