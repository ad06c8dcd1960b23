package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"skandha.dev/services/core/identities"
	"skandha.dev/services/internal/trust"
)

// Keys are those of a bus with rights.
type Keys struct {
	File string // of [trust.WriteFiles]; empty: the bus has no rights
	URL  string // of the bus
	CA   string // PEM file to verify the bus against; empty: it has no TLS, or a certificate that the system trusts
}

// Identities are who may connect to the bus of the keys; nil if it has no rights.
func (k Keys) Identities(d Deps) (*identities.Identities, error) {
	if k.File == "" {
		return nil, nil //nolint:nilnil // there are none
	}
	authority, keeper, err := k.open(d.Log)
	if err != nil {
		return nil, err
	}
	return identities.New(identities.Config{Bus: d.Bus, Authority: authority, Keeper: keeper, Log: d.Log}), nil
}

// Announce gives the server the account of the system: what its services may do, and which of their keys are
// valid. What is no longer valid is disconnected when it returns.
func (k Keys) Announce(ctx context.Context, log *slog.Logger) error {
	authority, keeper, err := k.open(log)
	if err != nil {
		return err
	}
	account, err := authority.Account()
	if err != nil {
		return err
	}
	err = keeper.Update(ctx, account)
	if errors.Is(err, nats.ErrAuthorization) {
		return fmt.Errorf("the bus %s does not trust %s; it runs with other keys: see --beside", k.URL, k.File)
	}
	return err
}

func (k Keys) open(log *slog.Logger) (*trust.Authority, *identities.Keeper, error) {
	authority, err := trust.Read(k.File)
	if err != nil {
		return nil, nil, err
	}
	keeper, err := authority.Keeper()
	if err != nil {
		return nil, nil, err
	}
	dial := func(opts ...nats.Option) (*nats.Conn, error) {
		opts = append(opts, nats.UserJWT(keeper.JWT, keeper.Sign))
		if k.CA != "" {
			opts = append(opts, nats.RootCAs(k.CA))
		}
		return nats.Connect(k.URL, opts...)
	}
	return authority, identities.NewKeeper(dial, log), nil
}
