package mqttclient_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/test/mosquittotest"
	"skandha.dev/services/test/natstest"
)

func dial(t *testing.T, b mqttclient.Broker, o mqttclient.Options) *mqttclient.Conn {
	t.Helper()
	c, err := b.Dial(natstest.Context(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(0) })
	return c
}

func TestABrokerKeepsWhatIsNotAcknowledged(t *testing.T) {
	b := mosquittotest.Start(t).Client()
	ctx := natstest.Context(t)
	got := make(chan mqttclient.Message, 4)
	in := dial(t, b, mqttclient.Options{ClientID: "in", Receive: func(m mqttclient.Message) { got <- m }})
	if err := in.Subscribe(ctx, map[string]byte{"t": 1}); err != nil || in.Kept() {
		t.Fatal(err, in.Kept())
	}
	out := dial(t, b, mqttclient.Options{ClientID: "out", Clean: true})
	for _, text := range []string{"one", "two"} {
		if err := out.Publish(ctx, mqttclient.Message{Topic: "t", Payload: []byte(text), QoS: 1}); err != nil {
			t.Fatal(err)
		}
	}
	one := <-got
	one.Ack()
	two := <-got
	in.Close(time.Second)
	in = dial(t, b, mqttclient.Options{ClientID: "in", Receive: func(m mqttclient.Message) { got <- m }})
	again := <-got
	if !in.Kept() || string(again.Payload) != "two" || again.ID != two.ID {
		t.Errorf("kept %t, got %q as packet %d; want two as %d", in.Kept(), again.Payload, again.ID, two.ID)
	}
}

func TestAPayloadThatIsTooLargeArrivesCut(t *testing.T) {
	b := mosquittotest.Start(t).Client()
	ctx := natstest.Context(t)
	out := dial(t, b, mqttclient.Options{ClientID: "out", Clean: true})
	b.MaxPayload = 10
	got := make(chan mqttclient.Message, 4)
	in := dial(t, b, mqttclient.Options{ClientID: "in", Clean: true, Receive: func(m mqttclient.Message) { m.Ack(); got <- m }})
	if err := in.Subscribe(ctx, map[string]byte{"t": 1}); err != nil {
		t.Fatal(err)
	}
	for _, payload := range [][]byte{bytes.Repeat([]byte("x"), 1<<20), []byte("small")} {
		if err := out.Publish(ctx, mqttclient.Message{Topic: "t", Payload: payload, QoS: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if m := <-got; len(m.Payload) <= 10 || len(m.Payload) > 70_000 {
		t.Errorf("%d bytes, want a little more than 10", len(m.Payload))
	}
	if m := <-got; string(m.Payload) != "small" {
		t.Errorf("got %q", m.Payload)
	}
}

func TestAnotherClientWithTheSameIDTakesOver(t *testing.T) {
	b := mosquittotest.Start(t).Client()
	first := dial(t, b, mqttclient.Options{ClientID: "same"})
	dial(t, b, mqttclient.Options{ClientID: "same"})
	select {
	case <-first.Done():
	case <-natstest.Context(t).Done():
		t.Fatal("the first connection lasts")
	}
	if err := first.Publish(natstest.Context(t), mqttclient.Message{Topic: "t", QoS: 1}); err == nil {
		t.Error("it published")
	}
}

// certify writes a certificate for 127.0.0.1 that is its own authority.
func certify(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTLSVerifiesBothSides(t *testing.T) {
	cert, key := certify(t)
	b := mosquittotest.Start(t, "cafile "+cert, "certfile "+cert, "keyfile "+key, "require_certificate true").Client()
	b.URL = strings.Replace(b.URL, "mqtt:", "mqtts:", 1)
	b.CA, b.Cert, b.Key = cert, cert, key
	dial(t, b, mqttclient.Options{ClientID: "in", Clean: true})
	other, _ := certify(t)
	for name, wrong := range map[string]mqttclient.Broker{
		"another authority": {URL: b.URL, CA: other, Cert: cert, Key: key}, "no certificate": {URL: b.URL, CA: cert},
		"no TLS": {URL: strings.Replace(b.URL, "mqtts:", "mqtt:", 1)},
	} {
		if c, err := wrong.Dial(natstest.Context(t), mqttclient.Options{ClientID: "x", Clean: true}); err == nil {
			c.Close(0)
			t.Errorf("%s: connected", name)
		}
	}
}

func TestUsersAndTheirRights(t *testing.T) {
	dir := t.TempDir()
	users, rights := filepath.Join(dir, "users"), filepath.Join(dir, "rights")
	// The hash of "secret", as mosquitto_passwd writes it, would bind the test to its format:
	// let mosquitto make it.
	if err := os.WriteFile(users, []byte("ada:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hash(t, users)
	if err := os.WriteFile(rights, []byte("user ada\ntopic readwrite mine/#\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := mosquittotest.Start(t, "allow_anonymous false", "password_file "+users, "acl_file "+rights).Client()
	if _, err := b.Dial(natstest.Context(t), mqttclient.Options{ClientID: "x", Clean: true}); !errors.Is(err, mqttclient.ErrRefused) ||
		!strings.Contains(err.Error(), "user and password") {
		t.Errorf("without a password: %v", err)
	}
	b.User, b.Password = "ada", "secret"
	c := dial(t, b, mqttclient.Options{ClientID: "x", Clean: true})
	if err := c.Subscribe(natstest.Context(t), map[string]byte{"mine/+": 1}); err != nil {
		t.Error(err)
	}
}

// A broker that is none: it hangs, says something else, or hangs up.
func TestBrokersThatAreNone(t *testing.T) {
	for name, answer := range map[string]func(net.Conn){
		"hangs up": func(c net.Conn) { _ = c.Close() },
		"says HTTP": func(c net.Conn) {
			_, _ = fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_ = c.Close()
		},
		"lies":          func(c net.Conn) { _, _ = c.Write([]byte{0x20, 0xff, 0xff, 0xff, 0x7f}) },
		"half-closes":   func(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() },
		"never answers": func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			ctx, cancel := context.WithCancel(natstest.Context(t))
			defer cancel()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer func() { _ = c.Close() }()
				_, _ = c.Read(make([]byte, 1024)) // CONNECT
				if answer(c); name == "never answers" {
					cancel()
				}
				<-t.Context().Done()
			}()
			b := mqttclient.Broker{URL: "mqtt://" + l.Addr().String()}
			if c, err := b.Dial(ctx, mqttclient.Options{ClientID: "x"}); err == nil {
				c.Close(0)
				t.Error("connected")
			}
		})
	}
}

func TestConfigurationsAreChecked(t *testing.T) {
	ok := "mqtt://broker.example.org"
	for want, b := range map[string]mqttclient.Broker{
		"url: want mqtt://": {URL: "broker"}, "url: scheme": {URL: "http://x"}, "url: want": {URL: "mqtt://ada:x@host"},
		"password requires user": {URL: ok, Password: "x"}, "cert and key": {URL: "mqtts://x", Cert: "x"},
		"require a url": {URL: ok, CA: "x"}, "publish[0]": {URL: ok, Publish: []string{"a/#/b"}}, "max_payload": {URL: ok, MaxPayload: -1},
	} {
		if err := (mqttclient.Config{"house": b}).Validate(); err == nil || !strings.Contains(err.Error(), "mqtt.house."+want) &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", b, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "c.yaml")
	for text, want := range map[string]string{
		"mqtt: {house: {url: 'mqtt://x'}, embedded: {publish: [a]}}": "",
		"mqtt: {embedded: {url: 'mqtt://x'}}":                        "mqtt.embedded",
		"mqtt: {house: {uri: x}}":                                    "mqtt.house.uri",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := mqttclient.ReadConfig(file); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
