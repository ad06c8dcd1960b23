package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/identities"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/trust"
)

// login returns who may connect to the bus, as far as a server's configuration says it.
func (s *System) login(keep *kept) (natsserver.Config, error) {
	file := filepath.Join(s.cfg.Data, keysFile)
	if _, err := os.Stat(file); s.cfg.Open && err == nil {
		return natsserver.Config{}, fmt.Errorf("the bus of %s has rights, and its log belongs to their keys; leave out --no-rights",
			s.cfg.Data)
	}
	if !s.cfg.Open && s.cfg.Token != "" {
		return natsserver.Config{}, errors.New(
			"a bus with rights has no token; leave out --token (SKANDHA_TOKEN), or give --no-rights as well")
	}
	if s.cfg.Open {
		if s.cfg.Token == "" {
			keep.Token = cmp.Or(keep.Token, newToken())
			s.cfg.Token = keep.Token
		}
		s.operator = s.cfg.Token
		return natsserver.Config{Token: s.cfg.Token}, nil
	}
	if keep.Token != "" {
		keep.Token = ""
		s.log.Warn("the bus now enforces rights, and its previous token is void; plugins and listeners outside this process " +
			"need credentials: skandha env NAME")
	}
	var err error
	if s.trust, err = trust.Open(file); err != nil {
		return natsserver.Config{}, err
	}
	// Tokens of earlier runs stay valid, so that what was attached comes back after a restart.
	if s.operator, err = s.trust.OperatorToken(); err != nil {
		return natsserver.Config{}, err
	}
	operator, err := s.trust.Server()
	return natsserver.Config{Operator: operator}, err
}

// keyed returns the configuration of the bus of a data directory whose system does not run, and of its
// client: with the rights that the directory has.
func keyed(data string) (server natsserver.Config, client bus.Config, err error) {
	file := filepath.Join(data, keysFile)
	if _, err := os.Stat(file); err != nil {
		return server, client, nil //nolint:nilerr // it has none
	}
	authority, err := trust.Read(file)
	if err != nil {
		return server, client, err
	}
	if server.Operator, err = authority.Server(); err == nil {
		client.Credentials, err = authority.Whole("skandha")
	}
	return server, client, err
}

// keysFile is the file in the data directory with the keys of the bus.
const keysFile = "keys.json"

func (s *System) credentials(name string) (*bus.Credentials, error) {
	if k, err := s.trust.Key(name); err == nil {
		return k.Credentials()
	}
	return s.trust.Whole(subject.Identity(name))
}

// ServiceKey writes the key with which a service in another process joins the system of a data directory, and
// returns its file; no file if the bus has no rights.
func ServiceKey(data, service string) (string, error) {
	from := filepath.Join(data, keysFile)
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	authority, err := trust.Read(from)
	if err != nil {
		return "", err
	}
	key, err := authority.Key(service)
	if err != nil {
		return "", err
	}
	file, err := filepath.Abs(filepath.Join(data, service+".key"))
	if err != nil {
		return "", err
	}
	return file, key.Write(file)
}

// identities are who from outside may connect; nil if the bus has no rights.
func (s *System) identities(b *journal.Journal) (*identities.Identities, error) {
	if s.trust == nil {
		return nil, nil //nolint:nilnil // there are none
	}
	keeper, err := s.trust.Keeper()
	if err != nil {
		return nil, err
	}
	dial := func(opts ...nats.Option) (*nats.Conn, error) {
		return nats.Connect("", append(opts, nats.InProcessServer(s.srv), nats.UserJWT(keeper.JWT, keeper.Sign))...)
	}
	log := s.log.With("service", "core")
	return identities.New(identities.Config{
		Bus: b, Authority: s.trust, Keeper: identities.NewKeeper(dial, log), Log: log,
	}), nil
}

// Join returns the SKANDHA_NATS of the people who run the system: a URL with their token in it.
func (s *System) Join() string { return s.with(s.operator) }

// Invite returns the SKANDHA_NATS of a plugin or listener with the charter.
func (s *System) Invite(ctx context.Context, c rights.Charter) (string, error) {
	if s.trust == nil {
		return s.Join(), nil
	}
	page, err := s.core.Identities().Do(ctx, coreapi.IdentitiesQuery{
		Op: coreapi.IdentityInvite, Charter: &c, Bearer: true, Replace: true, Caller: "system",
	})
	if err != nil {
		return "", err
	}
	return s.with(page.Credentials.Token), nil
}

// with is the URL of the bus with a token.
func (s *System) with(token string) string {
	u, err := url.Parse(s.srv.ClientURL())
	if err != nil {
		return s.srv.ClientURL()
	}
	u.User = url.User(token)
	return u.String()
}
