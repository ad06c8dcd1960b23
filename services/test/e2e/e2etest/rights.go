package e2etest

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/test/natstest"
)

// services are the services whose keys the kinds of process have.
var services = map[Kind]string{
	Core: "core", Provider: "provider", Runner: "toolrunner", Toolrunner: "toolrunner", Bridge: "uibridge", Listener: "listener",
}

// join returns the configuration with which the process connects: with the key of its service, or as a plugin with
// what it was invited with. It notes the name of the process, by its instance.
func (r Role) join(log *slog.Logger) (bus.Config, error) {
	cfg := bus.Config{URL: r.URL, Name: r.Name, Token: r.Token, Logger: log}
	service, ok := services[r.Kind]
	if !ok {
		return cfg, nil
	}
	authority, err := trust.Read(r.Keys)
	if err != nil {
		return cfg, err
	}
	if cfg.Credentials, err = key(authority, service); err != nil {
		return cfg, err
	}
	return cfg, os.WriteFile(nameFile(r.Keys, string(cfg.Credentials.Process)), []byte(r.Name), 0o600)
}

func key(a *trust.Authority, service string) (*bus.Credentials, error) {
	k, err := a.Key(service)
	if err != nil {
		return nil, err
	}
	return k.Credentials()
}

// nameFile is the file with the name of the process that is an instance.
func nameFile(keys, instance string) string {
	return filepath.Join(filepath.Dir(keys), instance+".name")
}

// NameOf is the name of the process that an instance is or was.
func (s *System) NameOf(instance string) string {
	s.T.Helper()
	name, err := os.ReadFile(nameFile(s.keys, instance))
	if err != nil {
		s.T.Fatalf("no process is %q: %v", instance, err)
	}
	return string(name)
}

// JoinFlags are the flags with which the main of a service joins.
func (s *System) JoinFlags(service string) []string {
	s.T.Helper()
	file := filepath.Join(s.Dir, service+".key")
	k, err := s.trust.Key(service)
	if err == nil {
		err = k.Write(file)
	}
	if err != nil {
		s.T.Fatal(err)
	}
	flags := []string{"--nats", s.URL, "--key", file}
	if service == "core" {
		flags = append(flags, "--bus-keys", s.keys)
	}
	return flags
}

// As connects as one more process of a service, until the test ends.
func (s *System) As(service, name string) *journal.Journal {
	s.T.Helper()
	c, err := key(s.trust, service)
	if err != nil {
		s.T.Fatal(err)
	}
	return natstest.Dial(s.T, bus.Config{URL: s.URL, Name: name, Credentials: c, Logger: slog.New(slog.DiscardHandler)})
}

// Invite invites a plugin that may do whatever plugins may, and returns its token.
func (s *System) Invite(name string) string {
	s.T.Helper()
	c := rights.Local(subject.Identity(name))
	body, err := json.Marshal(coreapi.IdentitiesQuery{
		Op: coreapi.IdentityInvite, Charter: &c, Bearer: true, Replace: true, Caller: "test",
	})
	if err != nil {
		s.T.Fatal(err)
	}
	for deadline := time.Now().Add(Patience); ; time.Sleep(50 * time.Millisecond) { // core may just be starting
		var page coreapi.IdentitiesPage
		answer, err := s.request(coreapi.AdminName, coreapi.VerbIdentities, body)
		if err == nil {
			err = json.Unmarshal(answer, &page)
		}
		if err == nil && page.Credentials != nil {
			return page.Credentials.Token
		}
		if time.Now().After(deadline) {
			s.T.Fatalf("%s is not invited: %v %s", name, err, answer)
		}
	}
}
