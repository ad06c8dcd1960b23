package test

import (
	"bufio"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

const patience = time.Minute

// bus is one server's part of the rendered configuration, in a directory.
type bus struct {
	dir     string
	options *server.Options
	*server.Server
}

// operator makes what `skandha secrets` makes: a server's configuration by which it trusts an operator, and
// credentials of a user.
func operator(t *testing.T) (conf string, login nats.Option) {
	t.Helper()
	key := func(pair nkeys.KeyPair, err error) (nkeys.KeyPair, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return pair, public
	}
	encode := func(token string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	op, opID := key(nkeys.CreateOperator())
	_, system := key(nkeys.CreateAccount())
	account, accountID := key(nkeys.CreateAccount())
	user, userID := key(nkeys.CreateUser())
	o := jwt.NewOperatorClaims(opID)
	o.SystemAccount = system
	a := jwt.NewAccountClaims(accountID)
	a.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	conf = fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver {\n  type: full\n  dir: \"/data/accounts\"\n"+
		"  allow_delete: true\n}\nresolver_preload {\n  %s: %s\n  %s: %s\n}\n", encode(o.Encode(op)), system,
		system, encode(jwt.NewAccountClaims(system).Encode(op)), accountID, encode(a.Encode(op)))
	token := encode(jwt.NewUserClaims(userID).Encode(account))
	return conf, nats.UserJWT(func() (string, error) { return token, nil }, user.Sign)
}

// certificate makes what a Secret with a certificate holds.
func certificate(t *testing.T) map[string]string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"bus"}}
	cert, err := x509.CreateCertificate(nil, about, about, public, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	return map[string]string{
		"tls.crt": text, "ca.crt": text, "tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
	}
}

// buses runs the rendered script and configuration of the servers, on ports of this machine and in
// directories of the test.
func buses(t *testing.T, values string) (all []*bus, login nats.Option) {
	t.Helper()
	c := render(t, values)
	w := c.workload("nats")
	trust, login := operator(t)
	var routes []string
	for range int(*w.set.Spec.Replicas) {
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", port(t)))
	}
	for i, route := range routes {
		b := &bus{dir: t.TempDir()}
		name := fmt.Sprintf("%s-%d", w.name, i)
		_, own, _ := strings.Cut(route, ":")
		place := strings.NewReplacer("/etc/nats", b.dir+"/etc", "/run/nats", b.dir+"/run", "../../run/nats", "../run",
			"/data/", b.dir+"/data/", "0.0.0.0:4222", "127.0.0.1:-1", "0.0.0.0:8222", "127.0.0.1:-1",
			"0.0.0.0:6222", "127.0.0.1:"+own)
		for _, dir := range []string{"etc", "etc-tls", "run", "bin"} {
			if err := os.Mkdir(filepath.Join(b.dir, dir), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		write := func(file, text string) {
			if err := os.WriteFile(filepath.Join(b.dir, file), []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		conf := place.Replace(c.configs[w.name].Data["nats.conf"])
		write("etc/nats.conf", conf)
		write("etc/server.conf", place.Replace(trust))
		for file, text := range certificate(t) {
			write("etc-tls/"+file, text)
		}
		write("bin/nats-server", "#!/bin/sh\necho \"$@\" >"+b.dir+"/args\n")
		t.Setenv("SKANDHA_NATS_NAME", name)
		t.Setenv("SKANDHA_NATS_ROUTES", "s0123456789abcdef")
		script := exec.CommandContext(t.Context(), "sh", "-c", place.Replace(c.configs[w.name].Data["nats.sh"]))
		script.Env = append(os.Environ(), "PATH="+filepath.Join(b.dir, "bin")+":"+os.Getenv("PATH"))
		for range 2 { // a container that starts again finds what it wrote
			if out, err := script.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			script = exec.CommandContext(t.Context(), script.Path, script.Args[1:]...)
			script.Env = append(os.Environ(), "PATH="+filepath.Join(b.dir, "bin")+":"+os.Getenv("PATH"))
		}
		file := filepath.Join(b.dir, "run", "routes.conf")
		made, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(made)
		for j, r := range routes {
			host := fmt.Sprintf("%s-%d.%s:6222", w.name, j, w.set.Spec.ServiceName)
			if !strings.Contains(text, "@"+host) {
				t.Errorf("no route to %s: %s", host, text)
			}
			text = strings.ReplaceAll(text, host, r)
		}
		write("run/routes.conf", text)
		args, err := os.ReadFile(filepath.Join(b.dir, "args"))
		if err != nil {
			t.Fatal(err)
		}
		if b.options, err = server.ProcessConfigFile(strings.TrimPrefix(strings.TrimSpace(string(args)), "-c ")); err != nil {
			t.Fatalf("%v\n%s", err, conf)
		}
		b.options.NoSigs, b.options.NoLog = true, true
		if b.options.ServerName != name {
			t.Errorf("the server's name is %s", b.options.ServerName)
		}
		all = append(all, b)
	}
	return all, login
}

func port(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func (b *bus) start(t *testing.T) {
	t.Helper()
	s, err := server.NewServer(b.options)
	if err != nil {
		t.Fatal(err)
	}
	b.Server = s
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// Three servers with the rendered configuration form a cluster, take only the operator's users, and keep
// a stream of three copies when one of them is lost.
func TestTheBusIsACluster(t *testing.T) {
	all, login := buses(t, "")
	for _, b := range all {
		b.start(t)
	}
	if _, err := nats.Connect(all[0].ClientURL()); err == nil {
		t.Error("a client without credentials is accepted")
	}
	connect := func(b *bus) nats.JetStreamContext {
		t.Helper()
		c, err := nats.Connect(b.ClientURL(), login)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		if urls := c.DiscoveredServers(); len(urls) > 0 {
			t.Errorf("clients learn the addresses of pods: %q", urls)
		}
		js, err := c.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	js := connect(all[0])
	eventually(t, "there is a stream of three copies", func() bool {
		_, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
		return err == nil
	})
	if _, err := js.Publish("s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	all[0].Shutdown()
	js = connect(all[1])
	eventually(t, "the others go on", func() bool {
		_, err := js.Publish("s", []byte("after"))
		return err == nil
	})
	m, err := js.GetMsg("S", 1)
	if err != nil || string(m.Data) != "kept" {
		t.Errorf("the message is %+v, %v", m, err)
	}
}

// A server joins with the password of the routes alone.
func TestStrangersDoNotJoinTheBus(t *testing.T) {
	all, _ := buses(t, "")
	all[0].start(t)
	var routes string
	eventually(t, "the server takes routes", func() bool {
		at := all[0].ClusterAddr()
		if at != nil {
			routes = at.String()
		}
		return at != nil
	})
	for login, want := range map[string]string{
		"":                            "-ERR 'Authorization Violation'",
		`,"user":"routes","pass":"s"`: "-ERR 'Authorization Violation'",
		`,"user":"routes","pass":"s0123456789abcdef"`: "PONG",
	} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", routes)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(c, "CONNECT {\"name\":\"stranger\",\"cluster\":\"skandha\"%s}\r\nPING\r\n", login)
		if err != nil {
			t.Fatal(err)
		}
		answer := ""
		for lines := bufio.NewScanner(c); lines.Scan(); {
			if answer = lines.Text(); answer == "PONG" || strings.HasPrefix(answer, "-ERR") {
				break
			}
		}
		if answer != want {
			t.Errorf("a server that says %q is answered %q, want %q", login, answer, want)
		}
		_ = c.Close()
	}
}

// With a certificate, clients use TLS, and servers verify each other.
func TestTheBusSpeaksTLS(t *testing.T) {
	for values, want := range map[string]bool{"": false, variations["everything"]: true} {
		all, _ := buses(t, values)
		o := all[0].options
		if is := o.TLSConfig != nil; is != want {
			t.Errorf("clients use TLS: %t, want %t", is, want)
		}
		verified := o.Cluster.TLSConfig != nil && o.Cluster.TLSConfig.ClientAuth == tls.RequireAndVerifyClientCert
		if verified != want {
			t.Errorf("servers verify each other: %t, want %t", verified, want)
		}
		url := "nats://skandha-nats:4222"
		if want {
			url = "tls://skandha-nats:4222"
		}
		for _, w := range render(t, values).workloads {
			for _, e := range w.pod.Spec.Containers[0].Env {
				if e.Name == "SKANDHA_NATS" && e.Value != url {
					t.Errorf("%s connects to %s, want %s", w.name, e.Value, url)
				}
			}
		}
	}
}

// The rendered configuration has what deploy/nats/nats.conf has; JetStream fits onto the volume.
func TestTheBusIsThatOfCompose(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{"nats.conf": read(t, "deploy/nats/nats.conf"), "server.conf": ""} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SKANDHA_NATS_MONITOR", "127.0.0.1:8222")
	t.Setenv("SKANDHA_NATS_DATA", dir)
	compose, err := server.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, values := range []string{"", variations["minimal"]} {
		all, _ := buses(t, values)
		o := all[0].options
		if o.MaxPayload != compose.MaxPayload || o.PingInterval != compose.PingInterval ||
			o.MaxPingsOut != compose.MaxPingsOut || o.JetStreamMaxMemory != compose.JetStreamMaxMemory ||
			!o.SyncAlways || o.SyncAlways != compose.SyncAlways {
			t.Errorf("the bus differs from that of compose: %+v, %+v", o, compose)
		}
		storage := render(t, values).workload("nats").set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage()
		if o.JetStreamMaxStore >= storage.Value() || o.JetStreamMaxStore < 30<<30 {
			t.Errorf("JetStream may store %d bytes on a volume of %d; its streams reserve 30 GiB",
				o.JetStreamMaxStore, storage.Value())
		}
		if cluster := o.Cluster.Name != ""; cluster != (len(all) > 1) {
			t.Errorf("%d servers, and a cluster: %t", len(all), cluster)
		}
		if o.LameDuckDuration+o.LameDuckGracePeriod != 35*time.Second {
			t.Errorf("a lame duck takes %v and %v; the grace period of the pods is for 35 s",
				o.LameDuckDuration, o.LameDuckGracePeriod)
		}
	}
}
