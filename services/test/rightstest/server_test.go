package rightstest

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/identities"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/test/natstest"
)

// world is a server with rights, and nothing else.
type world struct {
	testing.TB
	srv       *natsserver.Server
	authority *trust.Authority
	keeper    *identities.Keeper
}

func start(t testing.TB) *world {
	t.Helper()
	a, err := trust.Open(filepath.Join(t.TempDir(), "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	operator, err := a.Server()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, authority: a}
	w.srv, err = natsserver.Start(natsserver.Config{
		StoreDir: t.TempDir(), Sync: natsserver.Relaxed, Addr: "127.0.0.1:-1", Operator: operator, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.srv.Shutdown)
	keeper, err := a.Keeper()
	if err != nil {
		t.Fatal(err)
	}
	w.keeper = identities.NewKeeper(func(o ...nats.Option) (*nats.Conn, error) {
		return nats.Connect(w.srv.ClientURL(), append(o, nats.UserJWT(keeper.JWT, keeper.Sign))...)
	}, quiet)
	return w
}

// connection is that of an identity.
type connection struct {
	*nats.Conn
	name    string
	process subject.Instance
}

func (w *world) dial(name string, c *bus.Credentials) connection {
	w.Helper()
	inbox := "_INBOX"
	if c.Process != "" {
		inbox += "." + string(c.Process)
	}
	sign := c.Sign
	if sign == nil {
		sign = func([]byte) ([]byte, error) { return nil, nil }
	}
	nc, err := nats.Connect(w.srv.ClientURL(), nats.UserJWT(c.JWT, sign), nats.CustomInboxPrefix(inbox), nats.Name(name),
		nats.Timeout(natstest.Patience), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		w.Fatalf("%s connects: %v", name, err)
	}
	w.Cleanup(nc.Close)
	return connection{nc, name, c.Process}
}

// service connects a process of a service.
func (w *world) service(name string) connection {
	w.Helper()
	k, err := w.authority.Key(name)
	if err != nil {
		w.Fatal(err)
	}
	c, err := k.Credentials()
	if err != nil {
		w.Fatal(err)
	}
	return w.dial(name, c)
}

// whole connects somebody who may do everything in the account of the system.
func (w *world) whole() connection {
	w.Helper()
	c, err := w.authority.Whole("witness")
	if err != nil {
		w.Fatal(err)
	}
	return w.dial("witness", c)
}

// party invites and connects an identity with the charter.
func (w *world) party(c rights.Charter) connection {
	w.Helper()
	in, err := w.authority.Admit(c, 1, true)
	if err != nil {
		w.Fatal(err)
	}
	if err := w.keeper.Update(natstest.Context(w), in.AccountJWT); err != nil {
		w.Fatal(err)
	}
	return w.dial(string(c.Name), &bus.Credentials{JWT: func() (string, error) { return in.JWT, nil }})
}

// charters has each part of a charter alone, and a charter with everything.
func charters() map[string]rights.Charter {
	out := map[string]rights.Charter{
		"hooks":     {Hooks: []string{"before_act:judge"}},
		"tools":     {Tools: []string{"own"}},
		"providers": {Providers: []string{"own"}},
		"storage":   {Storage: true},
		"guides":    {Guides: true},
		"listener":  {Listeners: []subject.Writer{"own"}, Agents: []subject.Agent{"main"}},
		"sessions":  {Agents: []subject.Agent{"main"}, Sessions: []subject.Session{"s1"}},
		"see":       {See: true, Agents: []subject.Agent{"main"}},
		"everything": {
			Hooks: []string{"*:judge"}, Tools: []string{"*"}, Providers: []string{"*"}, Storage: true, Guides: true,
			Listeners: []subject.Writer{"own"}, Sessions: []subject.Session{"s1"}, See: true, Order: true,
		},
	}
	for part, c := range out {
		c.Name = "own"
		out[part] = c
	}
	return out
}

// flush returns when the server has handled all that the client has sent.
func (w *world) flush(c connection) {
	w.Helper()
	if err := c.FlushTimeout(natstest.Patience); err != nil {
		w.Fatalf("%s: %v", c.name, err)
	}
}

// matches is how NATS matches a subject with a pattern.
func matches(pattern, s string) bool {
	p, t := strings.Split(pattern, "."), strings.Split(s, ".")
	for i, token := range p {
		switch {
		case token == ">":
			return len(t) > i
		case i >= len(t) || token != "*" && token != t[i]:
			return false
		}
	}
	return len(p) == len(t)
}

// soon is how long the test waits for what must not come.
const soon = 50 * time.Millisecond

// quiet logs nothing: the server logs every refusal.
var quiet = slog.New(slog.DiscardHandler)
