package rightstest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core"
	"skandha.dev/services/core/identities"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/test/natstest"
)

// tenant is a system on a stock server.
type tenant struct {
	t    *testing.T
	dir  string
	url  string
	core *journal.Journal
	who  *identities.Identities
}

func secrets(t *testing.T, dir string, o trust.Options) {
	t.Helper()
	o.Store = t.TempDir()
	if _, err := trust.WriteFiles(dir, o); err != nil {
		t.Fatal(err)
	}
}

func announce(t *testing.T, dir, url string) {
	t.Helper()
	if err := (core.Keys{File: filepath.Join(dir, trust.KeysFile), URL: url}).Announce(natstest.Context(t), quiet); err != nil {
		t.Fatal(err)
	}
}

func joinTenant(t *testing.T, dir, url string) *tenant {
	t.Helper()
	s := &tenant{t: t, dir: dir, url: url, core: asCore(t, url, dir)}
	natstest.EnsureStreams(t, s.core)
	var err error
	s.who, err = core.Keys{File: filepath.Join(dir, trust.KeysFile), URL: url}.Identities(core.Deps{Bus: s.core, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.who.Start(natstest.Context(t)))
	return s
}

func (s *tenant) do(q coreapi.IdentitiesQuery) coreapi.IdentitiesPage {
	s.t.Helper()
	q.Caller = "test"
	page, err := s.who.Do(natstest.Context(s.t), q)
	if err != nil {
		s.t.Fatal(err)
	}
	return page
}

// guest invites a listener, and connects as it.
func (s *tenant) guest() (*journal.Journal, bus.Config) {
	s.t.Helper()
	page := s.do(coreapi.IdentitiesQuery{Op: coreapi.IdentityInvite, Bearer: true, Charter: &rights.Charter{
		Name: "guest", Listeners: []subject.Writer{"guest"},
	}})
	at := bus.Config{URL: s.url, Name: "guest", Token: page.Credentials.Token, Logger: quiet}
	return natstest.Dial(s.t, at), at
}

func say(ctx context.Context, b *journal.Journal, session subject.Session) error {
	_, err := b.PublishCause(ctx, subject.Ref{Agent: "main", Session: session}, subject.Input, "guest", "", []byte(`{"text":"hello"}`))
	return err
}

func (s *tenant) stored() uint64 {
	s.t.Helper()
	info, err := s.core.JetStream().Stream(natstest.Context(s.t), bus.StreamSessions)
	if err != nil {
		s.t.Fatal(err)
	}
	return info.CachedInfo().State.Msgs
}

// spy receives everything in the system's account.
func (s *tenant) spy() chan *nats.Msg {
	s.t.Helper()
	authority, err := trust.Read(filepath.Join(s.dir, trust.KeysFile))
	if err != nil {
		s.t.Fatal(err)
	}
	whole, err := authority.Whole("spy")
	if err != nil {
		s.t.Fatal(err)
	}
	nc := natstest.Dial(s.t, bus.Config{URL: s.url, Name: "spy", Credentials: whole, Logger: quiet}).Conn()
	heard := make(chan *nats.Msg, 1<<16)
	if _, err := nc.ChanSubscribe(">", heard); err != nil {
		s.t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		s.t.Fatal(err)
	}
	return heard
}

// Two systems on one server see nothing of each other: neither their services nor their parties, which may have
// the same names. The second one joins a server that runs.
func TestTwoSystemsOnOneServer(t *testing.T) {
	hostDir, dir := t.TempDir(), t.TempDir()
	secrets(t, hostDir, trust.Options{})
	s := serve(t, hostDir, t.TempDir(), -1)
	url := s.ClientURL()
	host := joinTenant(t, hostDir, url)
	secrets(t, dir, trust.Options{Beside: hostDir, Disk: 32 << 30})
	announce(t, dir, url)
	second := joinTenant(t, dir, url)
	if host.core.Account() == second.core.Account() {
		t.Fatal("both are one account")
	}
	hostGuest, hostAt := host.guest()
	guest, _ := second.guest()
	spied := host.spy()
	ctx := natstest.Context(t)
	for range 3 {
		if err := say(ctx, guest, "s"); err != nil {
			t.Fatal(err)
		}
	}
	if here, there := second.stored(), host.stored(); here != 3 || there != 0 {
		t.Errorf("the log of the system has %d inputs, that of the other %d; want 3 and 0", here, there)
	}
	if err := say(ctx, hostGuest, "mark"); err != nil { // what would have been heard came before it
		t.Fatal(err)
	}
	for m := range spied {
		if strings.HasPrefix(m.Subject, "agent.main.s.") {
			t.Errorf("the other system heard %s", m.Subject)
		}
		if strings.HasPrefix(m.Subject, "agent.main.mark.") {
			break
		}
	}
	if page := host.do(coreapi.IdentitiesQuery{}); len(page.Identities) != 1 {
		t.Errorf("the other system lists %d identities, want its own one", len(page.Identities))
	}
	// Revoking one's guest is nothing to the guest of the other with the same name.
	host.do(coreapi.IdentitiesQuery{Op: coreapi.IdentityRevoke, Name: "guest"})
	if b, err := journal.Connect(ctx, hostAt); err == nil {
		b.Close()
		t.Error("a revoked guest connects")
	}
	if err := say(ctx, guest, "s"); err != nil {
		t.Errorf("after the other system's guest was revoked: %v", err)
	}
	operator := natstest.Dial(t, bus.Config{URL: url, Name: "operator", CredsFile: filepath.Join(dir, trust.CredsFile)})
	if info, err := operator.JetStream().Stream(ctx, bus.StreamSessions); err != nil || info.CachedInfo().State.Msgs != 4 {
		t.Errorf("the operator sees %+v, %v; want the four inputs of its system", info, err)
	}
	checkDisk(t, s, second.core.Account(), 32<<30)
	// Nothing of it is written into the keys of a system that has its own bus.
	if _, err := trust.WriteFiles(hostDir, trust.Options{Beside: dir}); err == nil {
		t.Error("a system with its own bus became the tenant of another")
	}
}

func checkDisk(t *testing.T, s *server.Server, account string, want int64) {
	t.Helper()
	a, err := s.LookupAccount(account)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.JetStreamUsage().Limits.MaxStore; got != want {
		t.Errorf("the system may store %d bytes, want %d", got, want)
	}
}

// The keys of services are replaced while the server runs: first both are valid, then only the new ones. A process
// takes the new key when it connects again.
func TestKeysOfServicesRotate(t *testing.T) {
	dir := t.TempDir()
	secrets(t, dir, trust.Options{})
	url := serve(t, dir, t.TempDir(), -1).ClientURL()
	ctx := natstest.Context(t)
	old, err := trust.ReadKey(filepath.Join(dir, "core.key"))
	if err != nil {
		t.Fatal(err)
	}
	previous, err := old.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	behind := natstest.Dial(t, bus.Config{URL: url, Name: "core", Credentials: previous, Logger: quiet})
	follows := asCore(t, url, dir)
	natstest.EnsureStreams(t, follows)
	works := func(when string, b *journal.Journal) {
		t.Helper()
		natstest.Eventually(t, when, func() bool {
			_, err := b.JetStream().Stream(ctx, bus.StreamSessions)
			return err == nil
		})
	}
	mounted := filepath.Join(t.TempDir(), "key") // as in a container that has the single file
	if err := os.Link(filepath.Join(dir, "core.key"), mounted); err != nil {
		t.Fatal(err)
	}
	secrets(t, dir, trust.Options{Rotate: true})
	if k, err := trust.ReadKey(mounted); err != nil || k.Seed == old.Seed {
		t.Errorf("a container that has the file mounted has the previous key: %v", err)
	}
	if _, err := trust.WriteFiles(dir, trust.Options{Rotate: true}); err == nil {
		t.Error("keys rotate again while the previous ones are still valid")
	}
	announce(t, dir, url)
	works("with the previous key", behind)
	works("with the new key", asCore(t, url, dir))
	natstest.Dial(t, bus.Config{URL: url, Name: "operator", CredsFile: filepath.Join(dir, trust.CredsFile)})

	closed := make(chan struct{}, 1)
	behind.Conn().SetDisconnectErrHandler(func(*nats.Conn, error) { closed <- struct{}{} })
	secrets(t, dir, trust.Options{Retire: true})
	announce(t, dir, url)
	<-closed
	if b, err := journal.Connect(ctx, bus.Config{URL: url, Name: "core", Credentials: previous, Logger: quiet}); err == nil {
		b.Close()
		t.Error("a retired key connects")
	}
	works("connected again with the new key", follows)
	if _, err := trust.WriteFiles(dir, trust.Options{Retire: true}); err == nil {
		t.Error("nothing is retired without an error")
	}
}
