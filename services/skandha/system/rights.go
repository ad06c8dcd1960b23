package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"

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
	if err := ownLog(s.cfg.Data); err != nil {
		return natsserver.Config{}, err
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
	err := s.guardKeys(file)
	if err != nil {
		return natsserver.Config{}, err
	}
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

// ownLog reports that the log of a data directory belongs to other keys than the directory has: a bus with
// these would be empty.
func ownLog(data string) error {
	file, log := filepath.Join(data, keysFile), filepath.Join(data, busDir)
	accounts, err := natsserver.Storing(log)
	if err != nil || len(accounts) == 0 {
		return err
	}
	const advice = "put the file back from a copy, or move %s away to start anew without that log"
	authority, err := trust.Read(file)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is missing, and the log in %s belongs to its keys; "+advice, file, log, log)
	} else if err != nil {
		return err
	}
	operator, err := authority.Server()
	if err == nil && !slices.Contains(accounts, operator.Account) {
		err = fmt.Errorf("the log in %s belongs to other keys than those in %s; "+advice, log, file, log)
	}
	return err
}

// guardKeys makes the file with the keys its owner's alone, and warns if others could read or replace it.
func (s *System) guardKeys(file string) error {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the keys of the bus: %w", err)
	}
	dir, err := os.Stat(filepath.Dir(file))
	if err != nil {
		return fmt.Errorf("the keys of the bus: %w", err)
	}
	mode, enter := info.Mode().Perm(), dir.Mode().Perm()
	group, others := mode&0o060 != 0 && enter&0o010 != 0, mode&0o006 != 0 && enter&0o001 != 0
	if !group && !others {
		return nil
	}
	if err := os.Chmod(file, 0o600); err != nil {
		return fmt.Errorf("the keys of the bus can be read by other users; make the file yours alone: %w", err)
	}
	s.log.Warn("other users of this machine could read the keys of the bus, which let their holder do everything; the file is "+
		"yours alone now. For new keys, stop, take a backup, move the data directory away, and restore the backup "+
		"(skandha docs deploying)", "file", file, "mode", fmt.Sprintf("%04o", mode))
	return nil
}

// keyed returns the configuration of the bus of a data directory whose system does not run, and of its
// client: with the rights that the directory has.
func keyed(data string) (server natsserver.Config, client bus.Config, err error) {
	if err := ownLog(data); err != nil {
		return server, client, err
	}
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

// busDir is the directory in the data directory where the bus stores.
const busDir = "nats"

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
