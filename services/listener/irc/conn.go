package irc

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"skandha.dev/services/internal/text"
)

const (
	dialWait  = 15 * time.Second
	loginWait = 30 * time.Second
	writeWait = 10 * time.Second
	// maxLine bounds a line with tags (8,191 bytes) and without (512).
	maxLine = 16 << 10
	maxSASL = 400 // bytes of base64 in a line
)

// capabilities are what the gateway asks for, if the server offers it. It does without echo-message
// and labeled-response: they come on the connection that has sent, right before the answer to the
// PING, so when that is lost they are, too.
var capabilities = []string{"account-tag", "message-tags", "server-time"}

// conn is a connection to a server. One goroutine reads.
type conn struct {
	net.Conn
	reader *bufio.Reader
	since  time.Time
	server string   // its name, as it says it
	caps   []string // that are on

	writing sync.Mutex

	mu     sync.Mutex
	nick   string
	joined map[string]bool
	whois  *whois
	lost   chan struct{} // closed when the connection has ended
	// lines that the server has not confirmed, and the token of the PING that follows them
	sending *sending
	token   string
	alive   map[string]chan struct{} // closed with the PONG, by the token of another PING
}

// dial connects and logs in.
func dial(ctx context.Context, cfg Config, s secrets) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, loginWait)
	defer cancel()
	d := net.Dialer{Timeout: dialWait}
	raw, err := d.DialContext(ctx, "tcp", cfg.Server)
	if err != nil {
		return nil, err
	}
	if s.tls != nil {
		secure := tls.Client(raw, s.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, fmt.Errorf("TLS with %s: %w%s", cfg.Server, err, advice(err))
		}
		raw = secure
	}
	c := &conn{
		Conn: raw, reader: bufio.NewReaderSize(raw, maxLine), nick: cfg.Nick, joined: map[string]bool{},
		alive: map[string]chan struct{}{}, lost: make(chan struct{}),
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	err = c.login(cfg, s)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("logging in to %s: %w", cfg.Server, err)
	}
	c.since = time.Now()
	return c, nil
}

// advice is what to do about a certificate that was refused; empty for other errors.
func advice(err error) string {
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &authority):
		return "; set ca to the file of the authority that has signed it"
	case errors.As(err, &host):
		return "; set server to a name that is in the certificate"
	}
	return ""
}

// read returns the next line that is one. Longer lines than maxLine are skipped.
func (c *conn) read() (message, error) {
	skip := false
	for {
		line, err := c.reader.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			skip = true
			continue
		}
		if err != nil {
			return message{}, err
		}
		if m, ok := parse(string(line)); ok && !skip {
			return m, nil
		}
		skip = false
	}
}

// oneLine replaces what would end a line early.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ", "\x00", " ")

// write sends a line.
func (c *conn) write(format string, args ...any) error {
	line := oneLine.Replace(fmt.Sprintf(format, args...))
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(writeWait)) // of a closed connection the write fails
	_, err := c.Write([]byte(line + "\r\n"))
	if err != nil {
		_ = c.Close()
	}
	return err
}

// login registers the connection (RFC 2812, section 3.1; IRCv3 capability negotiation and SASL).
func (c *conn) login(cfg Config, s secrets) error {
	if err := c.write("CAP LS 302"); err != nil {
		return err
	}
	if s.password != "" {
		if err := c.write("PASS %s", s.password); err != nil {
			return err
		}
	}
	if err := errors.Join(c.write("NICK %s", c.nick), c.write("USER %s 0 * :%s", slugUser(cfg.Nick), cfg.Nick)); err != nil {
		return err
	}
	l := login{conn: c, cfg: cfg, secrets: s}
	for {
		m, err := c.read()
		if err != nil {
			return err
		}
		done, err := l.handle(m)
		if done || err != nil {
			return err
		}
	}
}

// slugUser is the user name: at most nine letters and digits.
func slugUser(nick string) string {
	s := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, fold(nick))
	if s == "" {
		return "skandha"
	}
	return s[:min(len(s), 9)]
}

// login is the state of logging in.
type login struct {
	*conn
	cfg     Config
	secrets secrets
	offered []string
	authed  bool
}

func (l *login) handle(m message) (done bool, err error) {
	switch m.command {
	case "PING":
		return false, l.write("PONG :%s", m.param(0))
	case "CAP":
		return false, l.capability(m)
	case "AUTHENTICATE":
		return false, l.authenticate()
	case "903": // RPL_SASLSUCCESS
		l.authed = true
		return false, l.write("CAP END")
	case "902", "904", "905", "906", "908":
		return false, fmt.Errorf("the server refused the account %s: %s", l.cfg.Account, m.param(len(m.params)-1))
	case "433", "436", "437": // the nickname is in use, or not available
		l.nick = l.cfg.Nick[:min(len(l.cfg.Nick), 7)] + "_" + strconv.Itoa(rand.IntN(10))
		return false, l.write("NICK %s", l.nick)
	case "432":
		return false, fmt.Errorf("the server does not accept the nickname %s; set another nick", l.nick)
	case "464", "465":
		return false, fmt.Errorf("the server refused the connection: %s", m.param(len(m.params)-1))
	case "ERROR":
		return false, fmt.Errorf("the server ended the connection: %s", m.param(0))
	case "001":
		if l.cfg.Account != "" && !l.authed {
			return false, errors.New("the server offers no SASL, so the account cannot log in; remove account, or use another server")
		}
		l.nick, l.server = m.param(0), m.prefix
		return true, nil
	}
	return false, nil
}

// capability handles the server's list of capabilities, and its answer to the request.
func (l *login) capability(m message) error {
	switch strings.ToUpper(m.param(1)) {
	case "LS":
		for c := range strings.FieldsSeq(m.param(len(m.params) - 1)) {
			name, _, _ := strings.Cut(c, "=")
			l.offered = append(l.offered, name)
		}
		if m.param(2) == "*" && len(m.params) > 3 { // more follow
			return nil
		}
		wanted := capabilities
		if l.cfg.Account != "" {
			wanted = append(slices.Clone(wanted), "sasl")
		}
		wanted = slices.DeleteFunc(slices.Clone(wanted), func(c string) bool { return !slices.Contains(l.offered, c) })
		if len(wanted) == 0 {
			return l.write("CAP END")
		}
		return l.write("CAP REQ :%s", strings.Join(wanted, " "))
	case "ACK":
		l.caps = append(l.caps, strings.Fields(m.param(len(m.params)-1))...)
		if l.cfg.Account != "" && slices.Contains(l.caps, "sasl") {
			return l.write("AUTHENTICATE PLAIN")
		}
		return l.write("CAP END")
	case "NAK":
		return l.write("CAP END")
	}
	return nil
}

// authenticate sends the account and its password (SASL PLAIN, RFC 4616).
func (l *login) authenticate() error {
	reply := base64.StdEncoding.EncodeToString([]byte("\x00" + l.cfg.Account + "\x00" + l.secrets.account))
	for len(reply) >= maxSASL {
		if err := l.write("AUTHENTICATE %s", reply[:maxSASL]); err != nil {
			return err
		}
		reply = reply[maxSASL:]
	}
	if reply == "" {
		reply = "+"
	}
	return l.write("AUTHENTICATE %s", reply)
}

// has reports whether a capability is on.
func (c *conn) has(name string) bool { return slices.Contains(c.caps, name) }

// name returns the gateway's current nickname.
func (c *conn) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nick
}

// in reports whether the gateway is in a channel.
func (c *conn) in(room string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.joined[room]
}

// rooms returns the channels that the connection is in.
func (c *conn) rooms() (in []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for room, is := range c.joined {
		if is {
			in = append(in, room)
		}
	}
	return in
}

func (c *conn) setIn(room string, in bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joined[room] = in
}

// room is how many bytes of text fit in a line to a target: 512, without the end, and without what
// the server puts before it for the others: nick, user (10 bytes with ~) and host (64).
func (c *conn) room(target string) int {
	return 510 - len(":"+c.name()+"!") - 10 - len("@") - 64 - len(" PRIVMSG "+target+" :")
}

// whois collects the answer about one nickname.
type whois struct {
	nick          string
	host, account string
	done          chan struct{}
}

// reason shortens what a server says.
func reason(m message) string { return text.Cut(unformatted(m.param(len(m.params)-1)), 200) }
