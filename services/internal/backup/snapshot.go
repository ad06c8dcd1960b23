package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/bus"
)

const (
	apiPrefix = "$JS.API.STREAM."
	answerIn  = 30 * time.Second // for the server's next message
	window    = 8 << 20          // bytes that the server sends before they are acknowledged
)

// ErrGone means that the server went away in the middle.
var ErrGone = errors.New("the connection to the NATS server was lost")

// errNobody means that no server has heard a request.
var errNobody = fmt.Errorf("%w: nobody answers for JetStream", ErrGone)

// errEnded means that the server could not complete a snapshot. In a cluster that elects leaders this passes.
var errEnded = errors.New("the server ended the snapshot")

// rest waits before something is tried again.
func rest(ctx context.Context) error {
	t := time.NewTimer(500 * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// connected returns a context that ends, with the cause [ErrGone], when the connection is lost: the server
// remembers neither snapshots nor restores.
func connected(ctx context.Context, b *bus.Bus) (context.Context, context.CancelFunc) {
	lost := b.Control().Lost()
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-lost:
			cancel(ErrGone)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// orGone returns [ErrGone] for an error that only follows from it.
func orGone(ctx context.Context, err error) error {
	if disconnected(err) || errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), ErrGone) {
		return ErrGone
	}
	return err
}

// disconnected reports whether a client's error means that it has no connection.
func disconnected(err error) bool {
	return errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionClosed)
}

// answer is what every answer of the API may contain.
type answer struct {
	Error  *jetstream.APIError `json:"error"`
	Config json.RawMessage     `json:"config"`
	State  json.RawMessage     `json:"state"`
	To     string              `json:"deliver_subject"`
}

// call asks the API about a stream.
func call(ctx context.Context, b *bus.Bus, verb, stream string, request any) (a answer, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return a, err
	}
	m, err := ask(ctx, b, apiPrefix+verb+"."+stream, body, answerIn)
	if err != nil {
		return a, err
	}
	return a, a.read(m.Data)
}

// ask sends a request that one server hears. The servers of a cluster may elect a leader, or not yet know
// who listens where: until then nobody has heard it, and it is sent again.
func ask(ctx context.Context, b *bus.Bus, subj string, body []byte, wait time.Duration) (*nats.Msg, error) {
	for began := time.Now(); ; {
		m, err := askOnce(ctx, b, subj, body, wait)
		if !errors.Is(err, errNobody) || !b.Connected() || time.Since(began) > answerIn {
			return m, err
		}
		if err := rest(ctx); err != nil {
			return nil, err
		}
	}
}

func askOnce(ctx context.Context, b *bus.Bus, subj string, body []byte, wait time.Duration) (*nats.Msg, error) {
	one, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m, err := b.Conn().RequestWithContext(one, subj, body)
	switch {
	case err == nil:
		return m, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders):
		return nil, errNobody
	case disconnected(err):
		return nil, ErrGone
	}
	return nil, bus.TransportError("asking the NATS server", err)
}

func (a *answer) read(data []byte) error {
	if err := json.Unmarshal(data, a); err != nil {
		return fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	if a.Error != nil {
		return a.Error
	}
	return nil
}

// snapshot is one that the server sends.
type snapshot struct {
	answer
	b      *bus.Bus
	sub    *nats.Subscription
	chunks chan *nats.Msg
}

// begin asks for the snapshot of a stream. When it returns, the server has fixed which messages are in it.
func begin(ctx context.Context, b *bus.Bus, stream string) (s *snapshot, err error) {
	s = &snapshot{b: b, chunks: make(chan *nats.Msg, 2*window/chunkBytes)}
	inbox := b.Conn().NewInbox()
	if s.sub, err = b.Conn().ChanSubscribe(inbox, s.chunks); err != nil {
		return nil, bus.TransportError("subscribing to the snapshot", err)
	}
	s.answer, err = call(ctx, b, "SNAPSHOT", stream, map[string]any{
		"deliver_subject": inbox, "chunk_size": chunkBytes, "window_size": window,
	})
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// stop ends the snapshot; the server notices.
func (s *snapshot) stop() { _ = s.sub.Unsubscribe() } // fails only on a closed connection

// copy receives the snapshot to its end.
func (s *snapshot) copy(ctx context.Context, to io.Writer) error {
	defer s.stop()
	patience := time.NewTimer(answerIn)
	defer patience.Stop()
	for {
		var m *nats.Msg
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-patience.C:
			return fmt.Errorf("the server has sent nothing for %s", answerIn)
		case m = <-s.chunks:
		}
		if len(m.Data) == 0 {
			if code := m.Header.Get("Status"); code != "" && code != "204" {
				return fmt.Errorf("%w: %s %s", errEnded, code, m.Header.Get("Description"))
			}
			return nil
		}
		if _, err := to.Write(m.Data); err != nil {
			return err
		}
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				return bus.TransportError("acknowledging a chunk", err)
			}
		}
		patience.Reset(answerIn)
	}
}

// upload restores a stream from its chunks, and returns the state that the server reports then.
func upload(ctx context.Context, b *bus.Bus, s Stream, from io.Reader) (st jetstream.StreamState, err error) {
	a, err := call(ctx, b, "RESTORE", s.Name, map[string]any{"config": s.Config, "state": s.State})
	if err != nil {
		return st, err
	}
	buf := make([]byte, chunkBytes)
	for {
		n, err := io.ReadFull(from, buf)
		if n > 0 {
			if _, err := send(ctx, b, a.To, buf[:n]); err != nil {
				return st, err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return st, err
		}
	}
	end, err := send(ctx, b, a.To, nil)
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(end.State, &st); err != nil {
		return st, fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	return st, nil
}

// send sends a chunk of a restore; an empty one ends it. The server answers an error, or nothing.
func send(ctx context.Context, b *bus.Bus, to string, chunk []byte) (a answer, err error) {
	wait := answerIn
	if len(chunk) == 0 {
		wait = 10 * answerIn // it writes the rest of what it has received
	}
	m, err := ask(ctx, b, to, chunk, wait)
	if err != nil || len(m.Data) == 0 {
		return a, err
	}
	return a, a.read(m.Data)
}
