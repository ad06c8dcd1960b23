package rightstest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/identities"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/test/natstest"
)

// lines are what was logged.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// with returns the lines that have all texts.
func (l *lines) with(texts ...string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for line := range strings.Lines(l.b.String()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		out = append(out, line)
	}
	return out
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

// await waits for a line that has all texts.
func (l *lines) await(t *testing.T, texts ...string) {
	t.Helper()
	natstest.Eventually(t, "the log says "+strings.Join(texts, " "), func() bool { return len(l.with(texts...)) > 0 })
}

// foreign is the authority of another system.
func foreign(t *testing.T) *trust.Authority {
	t.Helper()
	a, err := trust.Open(filepath.Join(t.TempDir(), "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// authority is that of the system.
func (r *running) authority() *trust.Authority {
	r.Helper()
	a, err := trust.Read(filepath.Join(r.data, "keys.json"))
	if err != nil {
		r.Fatal(err)
	}
	return a
}

// do changes an identity and returns the configuration with the new credentials, if there are any.
func (r *running) do(who *identities.Identities, q coreapi.IdentitiesQuery) bus.Config {
	r.Helper()
	q.Caller, q.Bearer = "test", true
	page, err := who.Do(natstest.Context(r), q)
	if err != nil {
		r.Fatal(err)
	}
	c := bus.Config{URL: r.url(), Logger: quiet}
	if page.Credentials != nil {
		c.Token = page.Credentials.Token
	}
	return c
}

// url is the address of the bus.
func (r *running) url() string {
	at := r.sys.Join()
	return "nats://" + at[strings.LastIndex(at, "@")+1:]
}

// late are the identities as a core keeps them whose clock is an hour behind.
func (r *running) late(log *slog.Logger) *identities.Identities {
	r.Helper()
	keeper, err := r.authority().Keeper()
	if err != nil {
		r.Fatal(err)
	}
	dial := func(opts ...nats.Option) (*nats.Conn, error) {
		return nats.Connect(r.url(), append(opts, nats.UserJWT(keeper.JWT, keeper.Sign))...)
	}
	who := identities.New(identities.Config{
		Bus: r.whole.Journal, Authority: r.authority(), Keeper: identities.NewKeeper(dial, quiet), Log: log,
		Now: func() time.Time { return time.Now().Add(-time.Hour) },
	})
	r.Cleanup(who.Start(context.Background()))
	return who
}

// made is a JWT of the service uibridge of a machine with another clock.
func made(t *testing.T, a *trust.Authority, times map[string]time.Time) bus.Config {
	t.Helper()
	k, err := a.Key("uibridge")
	if err != nil {
		t.Fatal(err)
	}
	c, err := k.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	token, err := c.JWT()
	if err != nil {
		t.Fatal(err)
	}
	token = dated(t, token, k.Seed, times)
	c.JWT = func() (string, error) { return token, nil }
	return bus.Config{Credentials: c, Logger: quiet}
}

// dated is a JWT with other times, signed with a seed.
func dated(t *testing.T, token, seed string, times map[string]time.Time) string {
	t.Helper()
	signer, err := nkeys.FromSeed([]byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(token, ".")
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	claims := map[string]any{}
	if err == nil {
		err = json.Unmarshal(body, &claims)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range times {
		claims[name] = at.Unix()
	}
	if body, err = json.Marshal(claims); err != nil {
		t.Fatal(err)
	}
	text := parts[0] + "." + base64.RawURLEncoding.EncodeToString(body)
	signature, err := signer.Sign([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// A client that is refused and the people who run the system learn the cause and what to do, the latter once.
func TestARefusalIsExplainedToBothSides(t *testing.T) {
	var log, lateLog lines
	r := runWith(t, log.logger(), "")
	who, late := r.sys.Core().Identities(), r.late(lateLog.logger())
	guest := func(name subject.Identity) *rights.Charter {
		return &rights.Charter{Name: name, Listeners: []subject.Writer{subject.Writer(name)}}
	}
	invite := func(name subject.Identity) bus.Config {
		return r.do(who, coreapi.IdentitiesQuery{Op: coreapi.IdentityInvite, Charter: guest(name)})
	}
	now := time.Now()
	for name, c := range map[string]struct {
		at           func() bus.Config
		client, core []string
	}{
		"revoked": {func() bus.Config {
			at := invite("gone")
			r.do(who, coreapi.IdentitiesQuery{Op: coreapi.IdentityRevoke, Name: "gone"})
			return at
		}, []string{"of gone", "revoked", "skandha plugins invite gone"}, []string{`"identity":"gone"`, "it was revoked at", "skandha plugins invite gone"}},
		"from before a revocation": {func() bus.Config {
			at := invite("again")
			r.do(who, coreapi.IdentitiesQuery{Op: coreapi.IdentityRevoke, Name: "again"})
			invite("again")
			return at
		}, []string{"of again", "revoked"}, []string{`"identity":"again"`, "from before it was revoked"}},
		"rotated": {func() bus.Config {
			at := invite("turned")
			r.do(who, coreapi.IdentitiesQuery{Op: coreapi.IdentityRotate, Name: "turned"})
			return at
		}, []string{"of turned", "replaced"}, []string{`"identity":"turned"`, "were replaced", "skandha plugins rotate turned"}},
		"expired, as a core does not know whose clock is behind": {func() bus.Config {
			c := guest("over")
			c.Expires = now.Add(-30 * time.Minute)
			return r.do(late, coreapi.IdentitiesQuery{Op: coreapi.IdentityInvite, Charter: c})
		}, []string{"of over expired at", "this machine's clock says", "skandha plugins invite over"}, []string{`"identity":"over"`, "expired at"}},
		"not yet valid": {
			func() bus.Config { return made(t, r.authority(), map[string]time.Time{"nbf": now.Add(time.Hour)}) },
			[]string{"of uibridge are not valid before", "this machine's clock says", "set the clock"},
			[]string{"not valid before", "the clock of the bus says", "set the clock"},
		},
		"of another system": {func() bus.Config {
			out, err := foreign(t).Admit(*guest("alien"), 1, true)
			if err != nil {
				t.Fatal(err)
			}
			return bus.Config{Token: out.JWT, Logger: quiet}
		}, []string{"of alien", "of another system"}, []string{"of another system", `"identity":""`, "skandha plugins invite NAME"}},
		"of another system, and this one's directory is known": {func() bus.Config {
			out, err := foreign(t).Admit(*guest("near"), 1, true)
			if err != nil {
				t.Fatal(err)
			}
			return bus.Config{Token: out.JWT, Data: r.data, Logger: quiet}
		}, []string{"of near are of another system, whose account is A", "skandha plugins invite near"}, []string{"of another system"}},
		"of another system, made on a machine whose clock is ahead": {func() bus.Config {
			return made(t, foreign(t), map[string]time.Time{"iat": now.Add(time.Hour)})
		}, []string{"which is in the future", "this machine's clock says", "skandha secrets"}, []string{"of another system", "skandha secrets"}},
		"none": {
			func() bus.Config { return bus.Config{Token: "guess", Logger: quiet} },
			[]string{"check the token"},
			[]string{"it shows no credentials"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := c.at()
			at.URL = r.url()
			for range 3 {
				_, err := bus.Connect(natstest.Context(t), at)
				if !errors.Is(err, nats.ErrAuthorization) {
					t.Fatalf("it ends with %v", err)
				}
				for _, want := range c.client {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the client says %q, without %q", err, want)
					}
				}
			}
			log.await(t, append(c.core, "a client was refused")...)
		})
	}
	// What has an identity is said once, and a list of the identities shows it.
	for _, name := range []subject.Identity{"gone", "again", "turned", "over"} {
		if got := log.with("a client was refused", `"identity":"`+string(name)+`"`); len(got) != 1 {
			t.Errorf("three refusals of %s are logged as %q", name, got)
		}
		page, err := who.Do(natstest.Context(t), coreapi.IdentitiesQuery{Name: name, Caller: "test"})
		if err != nil || len(page.Identities) != 1 || page.Identities[0].Refused == nil || page.Identities[0].Refused.Cause == "" {
			t.Errorf("%s is listed as %+v %v", name, page, err)
		}
	}
	if got := log.with("authentication error"); len(got) > 0 {
		t.Errorf("the server logs each attempt: %q", got)
	}
	if got := log.with("eyJ"); len(got) > 0 {
		t.Errorf("credentials are logged: %q", got)
	}
	lateLog.await(t, `"identity":"over"`, "by the clock of the bus", "that of core says", "set the one that is wrong")
}

// Credentials of a machine whose clock is wrong are accepted: the clock of the server counts.
func TestTheClockOfTheServerCounts(t *testing.T) {
	r := run(t)
	now := time.Now()
	for name, times := range map[string]map[string]time.Time{
		"ahead":  {"iat": now.Add(24 * time.Hour), "exp": now.Add(25 * time.Hour)},
		"behind": {"iat": now.Add(-24 * time.Hour), "exp": now.Add(time.Hour), "nbf": now.Add(-24 * time.Hour)},
	} {
		at := made(t, r.authority(), times)
		at.URL = r.url()
		b, err := bus.Connect(natstest.Context(t), at)
		if err != nil {
			t.Errorf("a clock that is %s: %v", name, err)
			continue
		}
		b.Close()
	}
}

// A server whose clock was ahead, and is right again, takes the account of the system as it is now.
func TestTheAccountOfTheSystemIsTheLatest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	a, err := trust.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var keys struct{ Operator string }
	if err := json.Unmarshal(body, &keys); err != nil {
		t.Fatal(err)
	}
	operator, err := a.Server()
	if err != nil {
		t.Fatal(err)
	}
	// As a release before would have made it: without the services.
	signer, err := nkeys.FromSeed([]byte(keys.Operator))
	if err != nil {
		t.Fatal(err)
	}
	old, err := jwt.NewAccountClaims(operator.Account).Encode(signer)
	if err != nil {
		t.Fatal(err)
	}
	old = dated(t, old, keys.Operator, map[string]time.Time{"iat": time.Now().Add(time.Hour)})
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "accounts"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "accounts", operator.Account+".jwt"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := natsserver.Start(natsserver.Config{
		StoreDir: dir, Sync: natsserver.Relaxed, Addr: "127.0.0.1:-1", Operator: operator, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	at := made(t, a, nil)
	at.URL = s.ClientURL()
	b, err := bus.Connect(natstest.Context(t), at)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
}

// A revocation ends credentials, too, that were made by a machine whose clock was ahead.
func TestARevocationEndsCredentialsFromTheFuture(t *testing.T) {
	c := rights.Charter{Name: "guest", Listeners: []subject.Writer{"guest"}}
	text, err := foreign(t).PartyAccount(c, 1, []string{"*"})
	if err != nil {
		t.Fatal(err)
	}
	account, err := jwt.DecodeAccountClaims(text)
	if err != nil {
		t.Fatal(err)
	}
	user := jwt.NewUserClaims("UANY")
	user.IssuedAt = time.Now().Add(24 * 365 * time.Hour).Unix()
	if !account.IsClaimRevoked(user) {
		t.Error("it is still valid")
	}
}

// A program that was revoked while it was connected says once why it is refused.
func TestARevokedProgramSaysWhy(t *testing.T) {
	var log lines
	r := run(t)
	at := r.invite(rights.Charter{Name: "guest", Listeners: []subject.Writer{"guest"}})
	at.Logger = log.logger()
	b, err := bus.Connect(natstest.Context(t), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	r.do(r.sys.Core().Identities(), coreapi.IdentitiesQuery{Op: coreapi.IdentityRevoke, Name: "guest"})
	log.await(t, "the bus refuses the credentials", "of guest", "revoked", "skandha plugins invite guest")
}

// A plugin with the credentials of another name says so, and so does the log of core.
func TestTheCredentialsOfAnotherName(t *testing.T) {
	var log lines
	r := runWith(t, log.logger(), "")
	c := r.invite(rights.Charter{Name: "weather", Tools: []string{"weather"}})
	c.Name = ""
	err := plugin.Serve(natstest.Context(t), plugin.Manifest{Name: "clock", Version: "1.0.0"}, plugin.Handlers{
		plugin.Tool("clock:now", "A tool.", func(context.Context, struct{}) (string, error) { return "", nil }),
	}, plugin.WithConfig(c), plugin.WithLogger(quiet))
	for _, want := range []string{`the credentials are for "weather"`, "skandha plugins invite clock"} {
		if !errors.Is(err, bus.ErrDenied) || !strings.Contains(err.Error(), want) {
			t.Errorf("the plugin ends with %v, without %q", err, want)
		}
	}
	log.await(t, "a program uses the credentials of another name", `"identity":"weather"`, "it calls itself clock",
		"skandha plugins invite clock")

	c.Identity = "clock"
	if _, err := bus.Connect(natstest.Context(t), c); err == nil || !strings.Contains(err.Error(), "skandha plugins invite clock") {
		t.Errorf("a client with another identity: %v", err)
	}
}
