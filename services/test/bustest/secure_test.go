package bustest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/internal/trust"
	"skandha.dev/services/test/natstest"
)

func startWith(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	o.ServerName, o.Host, o.Port, o.NoSigs, o.NoLog = "secure", "127.0.0.1", -1, true, true
	o.JetStream, o.StoreDir = true, t.TempDir()
	o.JetStreamMaxStore = natsserver.DefaultMaxStore // not what the disk has room for at the moment
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(natstest.Patience) {
		t.Fatal("the server is not ready")
	}
	return s
}

func TestNKeyAndPasswordLogIn(t *testing.T) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "seed.nk")
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	s := startWith(t, &server.Options{
		Nkeys: []*server.NkeyUser{{Nkey: public}},
		Users: []*server.User{{Username: "ada", Password: "love"}},
	})
	natstest.EnsureStreams(t, natstest.Dial(t, bus.Config{URL: s.ClientURL(), NKeySeedFile: file}))
	natstest.EnsureStreams(t, natstest.Dial(t, bus.Config{URL: s.ClientURL(), User: "ada", Password: "love"}))
	_, err = journal.Connect(natstest.Context(t),
		bus.Config{URL: s.ClientURL(), User: "ada", Password: "hate", Logger: natstest.Logger(t)})
	if !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("%v, want an authorization error", err)
	}
}

// certificate writes a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, priv.Public(), priv)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTLSVerifiesBothSides(t *testing.T) {
	cert, key := certificate(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool.AppendCertsFromPEM(pem)
	s := startWith(t, &server.Options{
		TLSVerify: true, TLSTimeout: 5,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
			MinVersion: tls.VersionTLS12,
		},
	})
	natstest.EnsureStreams(t,
		natstest.Dial(t, bus.Config{URL: s.ClientURL(), TLS: bus.TLS{CA: cert, Cert: cert, Key: key}}))
	if _, err := journal.Connect(natstest.Context(t),
		bus.Config{URL: s.ClientURL(), TLS: bus.TLS{CA: filepath.Join(t.TempDir(), "none.pem")}}); err == nil ||
		!strings.Contains(err.Error(), "none.pem") {
		t.Errorf("a CA file that is not there: %v", err)
	}
}

// A service needs no more than schemas/rights.yaml declares.
func TestServicesNeedNoMoreThanTheirRights(t *testing.T) {
	authority, err := trust.Open(filepath.Join(t.TempDir(), "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	operator, err := authority.Server()
	if err != nil {
		t.Fatal(err)
	}
	s, err := natsserver.Start(natsserver.Config{
		StoreDir: t.TempDir(), Sync: natsserver.Relaxed, Addr: "127.0.0.1:-1", Operator: operator, MaxPayload: 1 << 20,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	ctx := natstest.Context(t)
	refused := lines{with: "Permissions Violation"}
	dial := func(who string) *journal.Journal {
		k, err := authority.Key(who)
		if err != nil {
			t.Fatal(err)
		}
		c, err := k.Credentials()
		if err != nil {
			t.Fatal(err)
		}
		return natstest.Dial(t, bus.Config{
			URL: s.ClientURL(), Name: who, Credentials: c, Logger: slog.New(slog.NewTextHandler(&refused, nil)),
		})
	}
	core, runner, listener, sandbox := dial("core"), dial("toolrunner"), dial("listener"), dial("sandbox")
	natstest.EnsureStreams(t, core)
	natstest.EnsureStreams(t, core)

	deliveries := newCollector()
	consume(t, core, journal.ConsumeConfig{}, func(d journal.Delivery) { deliveries.take(d); _ = d.Ack() })
	fired := newFirings()
	consumeFired(t, core, fired)
	seq := cause(t, listener, ref("one"), "id", "hello")
	if again := cause(t, listener, ref("one"), "id", "hello"); again != seq {
		t.Errorf("stored at %d and %d", seq, again)
	}
	natstest.Eventually(t, "the delivery", func() bool { return deliveries.times(seq) > 0 })
	want := commits(t, core, ref("one"), 3, 10)
	if got := readCommits(t, core, ref("one"), 0); len(got) != len(want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, ok, err := core.NextCause(ctx, ref("one"), 0, seq); err != nil || !ok {
		t.Error(ok, err)
	}
	if _, err := core.Sessions(ctx, "ada"); err != nil {
		t.Error(err)
	}
	schedule(t, core, ref("one"), "now", 0)
	schedule(t, core, ref("one"), "never", time.Hour)
	if err := core.CancelTimer(ctx, ref("one"), "never"); err != nil {
		t.Error(err)
	}
	natstest.Eventually(t, "the timer", func() bool { return fired.times("ada/one/now") > 0 })
	if _, err := core.PublishCause(ctx, ref("one"), subject.Timer, subject.TimerWriter, "now", []byte("{}")); err != nil {
		t.Error(err)
	}
	if err := core.PublishDead(ctx, ref("one"), nil, []byte("x")); err != nil {
		t.Error(err)
	}
	if err := core.PublishLive(ctx, ref("one"), ref("one").Live("ui", "ready"), nil, []byte("x")); err != nil {
		t.Error(err)
	}
	if err := core.PutArtifact(ctx, "a", []byte("first")); err != nil {
		t.Error(err)
	}
	if err := core.PutArtifact(ctx, "a", []byte("second")); err != nil {
		t.Error(err)
	}
	if b, err := core.GetArtifact(ctx, "a"); err != nil || string(b) != "second" {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := core.ExpireArtifacts(ctx, time.Now()); err != nil {
		t.Error(err)
	}
	if err := core.DeleteArtifact(ctx, "a"); err != nil {
		t.Error(err)
	}
	claim, err := core.PutClaim(ctx, []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := core.GetClaim(ctx, claim); err != nil || string(b) != "body" {
		t.Errorf("%s, %v", b, err)
	}

	followABucket(t, core)

	r1 := string(runner.Instance())
	respond(t, runner, "runner."+r1, r1, echo)
	if b, err := caller(t, core).Request(ctx, "runner."+r1, r1, []byte("x")); err != nil || string(b) != "x" {
		t.Errorf("%s, %v", b, err)
	}
	if said := refused.String(); said != "" {
		t.Errorf("core was refused something: %s", said)
	}

	// No other client may commit or publish for another one; each gets the error at once.
	if _, err := sandbox.AppendCommit(ctx, ref("one"), []byte("forged"), want[2]); !errors.Is(err, bus.ErrRefused) ||
		!errors.Is(err, bus.ErrDenied) {
		t.Errorf("a sandbox's commit: %v, want ErrDenied", err)
	}
	if _, err := sandbox.PublishCause(ctx, ref("one"), subject.Confirmation, "w", "", []byte("x")); !errors.Is(err,
		bus.ErrDenied) {
		t.Errorf("a sandbox's confirmation: %v, want ErrDenied", err)
	}
	if _, err := sandbox.LastCommit(ctx, ref("one")); !errors.Is(err, bus.ErrDenied) {
		t.Errorf("a sandbox reads a commit: %v, want ErrDenied", err)
	}
	if _, err := caller(t, core).Request(ctx, "runner."+r1+".x", r1, nil); !errors.Is(err, bus.ErrDenied) {
		t.Errorf("core asks where it may not: %v, want ErrDenied", err)
	}
	if last, err := core.LastCommitSeq(ctx, ref("one")); err != nil || last != want[2] {
		t.Errorf("last commit %d, %v, want %d", last, err, want[2])
	}
}

// lines keeps the lines that are logged, or those that contain a text.
type lines struct {
	with string
	mu   sync.Mutex
	said strings.Builder
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(string(line), l.with) {
		l.said.Write(line)
	}
	return len(line), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.String()
}

// followABucket does all that can be done with a bucket.
func followABucket(t *testing.T, b *journal.Journal) {
	t.Helper()
	ctx, k := natstest.Context(t), b.Bucket(journal.BucketPlugins)
	var f follower
	w := k.Watch(f.take)
	defer w.Stop()
	natstest.Eventually(t, "what is there", func() bool { _, resets := f.began(); return resets > 0 })
	one := put(t, k, "manifest.a", "1", journal.Fence{Filter: subject.AllManifests})
	// Before it goes on: a bucket keeps an entry's last revision alone.
	natstest.Eventually(t, "the change to be seen", func() bool { return f.saw(one) })
	two, err := k.Delete(ctx, "manifest.a", journal.Fence{Revision: one})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the deletion to be seen", func() bool { return f.saw(two) })
	if first, _ := f.began(); !first.Reset {
		t.Errorf("it began with %+v, want a reset", first)
	}
	if last, err := k.Revision(ctx); err != nil || last != two {
		t.Error(last, err)
	}
	if err := k.Forget(ctx, "manifest.a", two); err != nil {
		t.Error(err)
	}
}
