package identities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
)

// Server is the NATS server, as far as it learns of accounts.
type Server interface {
	// Update gives the server an account. What it revokes has ended when Update returns.
	Update(ctx context.Context, account string) error
	// Follow calls heard for every connection that begins, ends or is refused, with the subject and the body of the
	// server's message, until ctx ends.
	Follow(ctx context.Context, heard func(subj string, body []byte))
	// Back has a value when the server is reachable again.
	Back() <-chan struct{}
}

// Keeper is a connection to the server's own account.
type Keeper struct {
	dial func(...nats.Option) (*nats.Conn, error)
	log  *slog.Logger
	back chan struct{}

	mu sync.Mutex
	nc *nats.Conn // nil until it is connected
}

// NewKeeper returns a keeper, which connects with dial when it is needed.
func NewKeeper(dial func(...nats.Option) (*nats.Conn, error), log *slog.Logger) *Keeper {
	return &Keeper{dial: dial, log: log, back: make(chan struct{}, 1)}
}

func (k *Keeper) connect() (*nats.Conn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nc != nil {
		return k.nc, nil
	}
	nc, err := k.dial(nats.Name("core/identities"), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(100*time.Millisecond), nats.ReconnectBufSize(-1), nats.ReconnectHandler(func(*nats.Conn) {
			select {
			case k.back <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		return nil, fmt.Errorf("connecting to the server's account: %w", err)
	}
	k.nc = nc
	return nc, nil
}

// Back implements Server.
func (k *Keeper) Back() <-chan struct{} { return k.back }

// updateWait is how long the server may take to answer.
const updateWait = 5 * time.Second

// Update implements Server.
func (k *Keeper) Update(ctx context.Context, account string) error {
	nc, err := k.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, updateWait)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, "$SYS.REQ.CLAIMS.UPDATE", []byte(account))
	if err != nil {
		return bus.TransportError("telling the server", err)
	}
	var answer struct {
		Error *struct{ Description string }
		Data  struct {
			Code    int
			Message string
		}
	}
	switch err := json.Unmarshal(m.Data, &answer); {
	case err != nil:
		return fmt.Errorf("telling the server: %w", err)
	case answer.Error != nil:
		return errors.New("the server refuses it: " + answer.Error.Description)
	case answer.Data.Code != 200:
		return fmt.Errorf("the server answers %d: %s", answer.Data.Code, answer.Data.Message)
	}
	return nil
}

// refusedSuffix ends the subjects of messages about clients that were not let in.
const refusedSuffix = ".CLIENT.AUTH.ERR"

// Follow implements Server.
func (k *Keeper) Follow(ctx context.Context, heard func(subj string, body []byte)) {
	for ctx.Err() == nil {
		nc, err := k.connect()
		if err == nil {
			for _, subj := range []string{"$SYS.ACCOUNT.*.CONNECT", "$SYS.ACCOUNT.*.DISCONNECT", "$SYS.SERVER.*" + refusedSuffix} {
				if _, err = nc.Subscribe(subj, func(m *nats.Msg) { heard(m.Subject, m.Data) }); err != nil {
					break
				}
			}
		}
		if err == nil {
			<-ctx.Done()
			break
		}
		k.log.Warn("cannot follow who connects; trying again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nc != nil {
		k.nc.Close()
		k.nc = nil
	}
}
