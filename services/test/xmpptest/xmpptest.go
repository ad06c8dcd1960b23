// Package xmpptest runs a private prosody for a test, with rooms and an archive, and has a client
// that counts what people see. The client shares no code with the gateway.
package xmpptest

import (
	"context"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"skandha.dev/services/test/natstest"
)

// Domain is the server's, and Rooms that of its rooms, which show accounts.
const (
	Domain = "localhost"
	Rooms  = "rooms.localhost"
	// Password is everybody's.
	Password = "xmpptest-secret"
)

// Server is a prosody in a separate process. It keeps its port and its data over restarts.
type Server struct {
	Addr string

	t       testing.TB
	program string
	file    string
	cmd     *exec.Cmd
}

// Options of a server.
type Options struct {
	Cert, Key string // files, for TLS
	NoArchive bool
	Temporary bool // rooms end when the last person leaves
	Hidden    bool // rooms show accounts to moderators only
}

// Start runs prosody with accounts until the test ends. Without the program it skips the test, or
// fails it if the environment says SKANDHA_REQUIRE=all.
func Start(t testing.TB, o Options, accounts ...string) *Server {
	t.Helper()
	program, err := exec.LookPath("prosody")
	if err != nil {
		const missing = "NOT TESTED: prosody is not installed"
		if os.Getenv("SKANDHA_REQUIRE") == "all" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	dir, port := t.TempDir(), natstest.FreePort(t)
	s := &Server{Addr: fmt.Sprintf("127.0.0.1:%d", port), t: t, program: program, file: filepath.Join(dir, "prosody.cfg.lua")}
	users := filepath.Join(dir, "data", Domain, "accounts")
	if err := os.MkdirAll(users, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, a := range accounts {
		body := fmt.Sprintf("return { [\"password\"] = %q };\n", Password)
		if err := os.WriteFile(filepath.Join(users, a+".dat"), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(s.file, []byte(o.config(dir, port)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

func (o Options) config(dir string, port int) string {
	mam, mucMAM, tls := `"mam";`, `"muc_mam";`, ""
	if o.NoArchive {
		mam, mucMAM = "", ""
	}
	if o.Cert != "" {
		tls = fmt.Sprintf("ssl = { certificate = %q; key = %q }\nc2s_require_encryption = true\n", o.Cert, o.Key)
	} else {
		tls = "c2s_require_encryption = false\nallow_unencrypted_plain_auth = true\nmodules_disabled = { \"s2s\"; \"tls\" }\n"
	}
	return fmt.Sprintf(`run_as_root = true
data_path = %q
pidfile = %q
log = { warn = "*console" }
interfaces = { "127.0.0.1" }
c2s_ports = { %d }
s2s_ports = {}
legacy_ssl_ports = {}
http_ports = {}
https_ports = {}
authentication = "internal_plain"
storage = "internal"
modules_enabled = { "roster"; "saslauth"; "disco"; "ping"; "tls"; %s }
%s
VirtualHost %q
Component %q "muc"
  modules_enabled = { %s }
  muc_log_by_default = true
  muc_room_locking = false
  max_history_messages = 10000
  muc_room_default_persistent = %v
  muc_room_default_history_length = 10000
  muc_room_default_public_jids = %v
`, filepath.Join(dir, "data"), filepath.Join(dir, "prosody.pid"), port, mam, tls, Domain, Rooms, mucMAM, !o.Temporary, !o.Hidden)
}

// Kill ends the server by SIGKILL and waits until it has ended.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Signal kills the server and does not wait.
func (s *Server) Signal() error { return s.cmd.Process.Kill() }

// Restart starts the server, after a kill if it runs, and waits until it accepts connections.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.cmd = exec.CommandContext(context.WithoutCancel(s.t.Context()), s.program, "-F", "--config", s.file)
	dieWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	natstest.Eventually(s.t, "prosody to accept connections", func() bool {
		c, err := dial(s.t, s.Addr)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}

func dial(t testing.TB, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(context.WithoutCancel(t.Context()), "tcp", address)
}

// Message is what a client has seen.
type Message struct {
	From string `xml:"from,attr"`
	Type string `xml:"type,attr"`
	ID   string `xml:"id,attr"`
	Body string `xml:"body"`
}

// Client is a person of the server, without TLS.
type Client struct {
	t    testing.TB
	conn net.Conn
	dec  *xml.Decoder

	mu       sync.Mutex
	messages []Message
	present  map[string]bool // in rooms, by room/nick
	gone     bool
}

// Dial logs a person in, until the test ends.
func (s *Server) Dial(t testing.TB, account string) *Client {
	t.Helper()
	conn, err := dial(t, s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &Client{t: t, conn: conn, present: map[string]bool{}}
	c.open()
	login := base64.StdEncoding.EncodeToString([]byte("\x00" + account + "\x00" + Password))
	c.Send("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>" + login + "</auth>")
	if got := c.skip(); got != "success" {
		t.Fatalf("logging in as %s: the server answers with <%s>", account, got)
	}
	c.open()
	c.Send("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>")
	if got := c.skip(); got != "iq" {
		t.Fatalf("binding as %s: the server answers with <%s>", account, got)
	}
	c.Send("<presence/>")
	go c.read()
	return c
}

func (c *Client) open() {
	c.t.Helper()
	c.dec = xml.NewDecoder(c.conn)
	c.Send("<stream:stream to='" + Domain + "' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>")
	c.start() // of the stream
	if got := c.skip(); got != "features" {
		c.t.Fatalf("the server answers with <%s>, want its features", got)
	}
}

func (c *Client) start() xml.StartElement {
	for {
		token, err := c.dec.Token()
		if err != nil {
			c.t.Fatalf("reading from the server: %v", err)
		}
		if s, ok := token.(xml.StartElement); ok {
			return s
		}
	}
}

// skip reads an element and returns its name.
func (c *Client) skip() string {
	c.t.Helper()
	s := c.start()
	if err := c.dec.Skip(); err != nil {
		c.t.Fatal(err)
	}
	return s.Name.Local
}

// Send sends XML. What becomes of it, the server's stanzas tell.
func (c *Client) Send(s string) { _, _ = c.conn.Write([]byte(s)) }

// Close ends the connection without closing the stream.
func (c *Client) Close() { _ = c.conn.Close() }

// Say sends a message: of the type groupchat to a room, or chat.
func (c *Client) Say(kind, to, text string) { c.SayAs(kind, to, text, "") }

// SayAs sends a message with an id.
func (c *Client) SayAs(kind, to, text, id string) {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text))
	c.Send(fmt.Sprintf("<message type='%s' to='%s' id='%s'><body>%s</body></message>", kind, to, id, b.String()))
}

// Join enters a room and waits until somebody else is in it, too.
func (c *Client) Join(room, nick, other string) {
	c.t.Helper()
	c.Send(fmt.Sprintf("<presence to='%s/%s'><x xmlns='http://jabber.org/protocol/muc'><history maxstanzas='0'/></x></presence>", room, nick))
	natstest.Eventually(c.t, nick+" to be in "+room, func() bool { return c.Sees(room, nick) && (other == "" || c.Sees(room, other)) })
}

// Sees reports whether somebody is in a room.
func (c *Client) Sees(room, nick string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.present[room+"/"+nick]
}

// Messages returns what the person has seen.
func (c *Client) Messages() []Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Message(nil), c.messages...)
}

// Saw reports whether any message contains a text.
func (c *Client) Saw(text string) bool {
	for _, m := range c.Messages() {
		if strings.Contains(m.Body, text) {
			return true
		}
	}
	return false
}

// Gone reports whether the connection has ended.
func (c *Client) Gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

func (c *Client) read() {
	defer func() {
		c.mu.Lock()
		c.gone = true
		c.mu.Unlock()
	}()
	for {
		token, err := c.dec.Token()
		if err != nil {
			return
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		var m Message
		if err := c.dec.DecodeElement(&m, &start); err != nil {
			return
		}
		c.mu.Lock()
		switch start.Name.Local {
		case "message":
			if m.Body != "" {
				c.messages = append(c.messages, m)
			}
		case "presence":
			c.present[m.From] = m.Type == ""
		}
		c.mu.Unlock()
	}
}
