package bus

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/telemetry"
)

// TLS names the files of a TLS connection. The server is verified against CA. With Cert and
// Key, the client presents its own certificate.
type TLS struct {
	CA   string // PEM file
	Cert string // PEM file
	Key  string // PEM file
}

// Config is the configuration of a connection to the bus. One of URL, InProcess and Data is
// required.
type Config struct {
	URL       string                     // e.g. nats://127.0.0.1:4222; several, separated by commas
	InProcess nats.InProcessConnProvider // an embedded server; overrides URL
	Data      string                     // data directory of a system, whose [RunFile] overrides URL and Token
	Name      string                     // the service's name, a valid id; default "skandha"
	Identity  subject.Identity           // as whom it asks, in reply subjects; default: the name
	Instance  subject.Instance           // default: the name and random hexadecimal digits

	// Set at most one of these, with Password for User.
	Token        string // a bearer JWT, or the token of a system without rights
	User         string
	Password     string
	CredsFile    string // JWT and seed
	NKeySeedFile string
	Credentials  *Credentials

	TLS         TLS
	InboxPrefix string       // for replies from JetStream; default _INBOX.<instance>
	Logger      *slog.Logger // default slog.Default

	account string // that the credentials are for
	party   bool   // the credentials are not those of a part of the system
}

const (
	// How long one attempt to connect may take. Another attempt may go to another server, or
	// take another route, and succeed sooner. An in-process server has neither, so an attempt
	// must not fail only because the machine is busy. It may be so busy that the server sends
	// its first ping before it has answered the client, so there are several attempts.
	connectWait          = 2 * time.Second
	connectWaitInProcess = 10 * time.Second
	connectTries         = 7
	connectPause         = 100 * time.Millisecond // at most, after the first attempt; doubles
)

func (c Config) withDefaults() Config {
	c.Name = cmp.Or(c.Name, "skandha")
	c.Identity = cmp.Or(c.Identity, subject.Identity(c.Name))
	if c.Instance == "" {
		c.Instance = NewInstance(c.Name)
	}
	c.InboxPrefix = cmp.Or(c.InboxPrefix, "_INBOX."+string(c.Instance))
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// NewInstance returns a new instance id that is unique among all processes.
func NewInstance(name string) subject.Instance {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	name = subject.Encode(name)
	return subject.Instance(name[:min(len(name), subject.MaxIDLen-17)] + "-" + hex.EncodeToString(b[:]))
}

// Validate reports all invalid fields; each error names its field.
func (c Config) Validate() error {
	var errs []error
	if c.URL == "" && c.InProcess == nil && c.Data == "" {
		errs = append(errs, errors.New("bus.url is empty and there is no embedded server; set one"))
	}
	if c.Name != "" && !subject.Valid(c.Name) {
		errs = append(errs, fmt.Errorf("bus.name: %q is not a valid id", c.Name))
	}
	if c.Identity != "" && !subject.Valid(c.Identity) {
		errs = append(errs, fmt.Errorf("bus.identity: %q is not a valid id", string(c.Identity)))
	}
	if c.Instance != "" && !subject.Valid(c.Instance) {
		errs = append(errs, fmt.Errorf("bus.instance: %q is not a valid id", string(c.Instance)))
	}
	ways := 0
	if c.Credentials != nil {
		ways++
	}
	for _, way := range []string{c.Token, c.User, c.CredsFile, c.NKeySeedFile} {
		if way != "" {
			ways++
		}
	}
	if ways > 1 {
		errs = append(errs, errors.New("bus: set only one of token, user, creds_file, nkey_seed_file and credentials"))
	}
	if c.Password != "" && c.User == "" {
		errs = append(errs, errors.New("bus.user is empty but bus.password is set"))
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		errs = append(errs, errors.New("only one of bus.tls.cert and bus.tls.key is set; set both or none"))
	}
	return errors.Join(errs...)
}

// Connect connects to the bus. It waits until the server is available, so that services may
// start in any order, and returns an error if ctx ends first or if the server rejects the
// credentials. A connection that is lost later is restored, with jitter and without a limit
// of attempts.
func Connect(ctx context.Context, cfg Config) (*Bus, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.URL, cfg.Token = splitToken(cfg.URL, cfg.Token)
	if err := cfg.identify(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	b := &Bus{
		cfg: cfg, log: cfg.Logger.With("instance", string(cfg.Instance)),
		closed: make(chan struct{}), back: make(chan struct{}), parts: map[part]struct{}{},
		buckets: map[string]jetstream.ObjectStore{}, missing: &Missing{hint: make(chan struct{}, 1)},
		storage: storage{changed: make(chan struct{}, 1)},
	}
	b.ctl, b.data = newLink(b, controlLink), newLink(b, logLink)
	if err := b.open(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// open opens both connections.
func (b *Bus) open(ctx context.Context) error {
	opts, err := b.options()
	if err != nil {
		return err
	}
	for _, l := range []*Link{b.ctl, b.data} {
		if err := l.open(ctx, opts); err != nil {
			return err
		}
	}
	go func() {
		<-b.data.closed
		<-b.ctl.closed
		close(b.closed)
	}()
	if b.cfg.InProcess == nil { // else no network can fail
		b.follow()
		go b.ctl.watchPulse(silentBeatsControl, b.giveUp)
		go b.data.watchPulse(silentBeatsLog, b.data.giveUp)
	}
	return nil
}

// giveUp drops the control connection, and the log connection if it goes to the same
// server.
func (b *Bus) giveUp() {
	if b.data.nc.ConnectedUrl() == b.ctl.nc.ConnectedUrl() {
		b.data.giveUp()
	}
	b.ctl.giveUp()
}

func (b *Bus) where() string {
	if b.cfg.InProcess != nil {
		return "in this process"
	}
	return telemetry.Redact(b.cfg.URL)
}

func (b *Bus) options() ([]nats.Option, error) {
	c := b.cfg
	wait := connectWait
	if c.InProcess != nil {
		wait = connectWaitInProcess
	}
	opts := []nats.Option{
		nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.RetryOnFailedConnect(c.InProcess == nil), // an in-process server is available now or never
		nats.CustomReconnectDelay(b.reconnectDelay),
		// Publishing without a connection fails immediately: the caller can handle that, and
		// a late copy would do harm.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(pingsUnanswered), nats.Timeout(wait),
		nats.DrainTimeout(30 * time.Second),
	}
	if c.InProcess != nil {
		opts = append(opts, nats.InProcessServer(c.InProcess))
	}
	return b.credentials(append(opts, nats.CustomInboxPrefix(c.InboxPrefix)))
}

func (b *Bus) credentials(opts []nats.Option) ([]nats.Option, error) {
	c := b.cfg
	if c.Data != "" && c.InProcess == nil {
		at := finder{dir: c.Data, wait: connectWait, token: c.Token}
		opts = append(opts, nats.SetCustomDialer(at), bearer(at.currentToken))
		c.Token = ""
	}
	switch {
	case c.Credentials != nil:
		opts = append(opts, nats.UserJWT(c.Credentials.JWT, c.Credentials.sign))
	case c.Token != "":
		opts = append(opts, bearer(func() string { return c.Token }))
	case c.User != "":
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	case c.CredsFile != "":
		opts = append(opts, nats.UserCredentials(c.CredsFile))
	case c.NKeySeedFile != "":
		key, err := nats.NkeyOptionFromSeed(c.NKeySeedFile)
		if err != nil {
			return nil, fmt.Errorf("bus.nkey_seed_file: %w", err)
		}
		opts = append(opts, key)
	}
	if c.TLS.CA != "" {
		opts = append(opts, nats.RootCAs(c.TLS.CA))
	}
	if c.TLS.Cert != "" {
		opts = append(opts, nats.ClientCert(c.TLS.Cert, c.TLS.Key))
	}
	return opts, nil
}
