package core

import (
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
	authority, err := trust.Read(k.File)
	if err != nil {
		return nil, err
	}
	keeper, err := authority.Keeper()
	if err != nil {
		return nil, err
	}
	dial := func(opts ...nats.Option) (*nats.Conn, error) {
		opts = append(opts, nats.UserJWT(keeper.JWT, keeper.Sign))
		if k.CA != "" {
			opts = append(opts, nats.RootCAs(k.CA))
		}
		return nats.Connect(k.URL, opts...)
	}
	return identities.New(identities.Config{
		Bus: d.Bus, Authority: authority, Keeper: identities.NewKeeper(dial, d.Log), Log: d.Log,
	}), nil
}
