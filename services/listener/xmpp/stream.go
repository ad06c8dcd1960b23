package xmpp

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"mellium.im/sasl"
)

const (
	dialWait  = 15 * time.Second
	loginWait = 30 * time.Second
	writeWait = 10 * time.Second
	maxStanza = 256 << 10 // bytes
)

const (
	nsStream = "http://etherx.jabber.org/streams"
	nsTLS    = "urn:ietf:params:xml:ns:xmpp-tls"
	nsSASL   = "urn:ietf:params:xml:ns:xmpp-sasl"
	nsBind   = "urn:ietf:params:xml:ns:xmpp-bind"
)

var errTooLarge = fmt.Errorf("a stanza is larger than %d bytes", maxStanza)

// bounded reads at most a stanza's bytes between two calls of reset.
type bounded struct {
	io.Reader
	left int
}

func (b *bounded) reset() { b.left = maxStanza }

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// stream is a connection to a server that is logged in. One goroutine reads.
type stream struct {
	net.Conn
	source  *bounded
	decoder *xml.Decoder
	jid     string // full
	lost    chan struct{}

	writing sync.Mutex

	mu      sync.Mutex
	rooms   map[string]*room         // by bare JID
	waiting map[string]chan *stanza  // for the answer to a stanza, by its id
	archive map[string]func(*stanza) // for messages of an archive, by the id of the query
}

// features are what a server offers at one point of the login.
type features struct {
	StartTLS   *struct{} `xml:"urn:ietf:params:xml:ns:xmpp-tls starttls"`
	Mechanisms []string  `xml:"urn:ietf:params:xml:ns:xmpp-sasl mechanisms>mechanism"`
	Bind       *struct{} `xml:"urn:ietf:params:xml:ns:xmpp-bind bind"`
}

// dial connects and logs in with a resource.
func dial(ctx context.Context, cfg Config, password string, secure *tls.Config, resource string) (*stream, error) {
	ctx, cancel := context.WithTimeout(ctx, loginWait)
	defer cancel()
	d := net.Dialer{Timeout: dialWait}
	raw, err := d.DialContext(ctx, "tcp", cfg.Server)
	if err != nil {
		return nil, err
	}
	s := &stream{
		Conn: raw, lost: make(chan struct{}), rooms: map[string]*room{}, waiting: map[string]chan *stanza{},
		archive: map[string]func(*stanza){},
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	err = s.login(ctx, cfg.JID, password, secure, resource)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("logging in to %s: %w", cfg.Server, err)
	}
	return s, nil
}

func (s *stream) login(ctx context.Context, jid, password string, secure *tls.Config, resource string) error {
	user, domain, _ := strings.Cut(jid, "@")
	f, err := s.open(domain)
	if err != nil {
		return err
	}
	if secure != nil {
		if err := s.startTLS(ctx, f, secure); err != nil {
			return err
		}
		if f, err = s.open(domain); err != nil {
			return err
		}
	}
	if err := s.authenticate(f, user, password); err != nil {
		return err
	}
	if _, err = s.open(domain); err != nil {
		return err
	}
	return s.bind(resource)
}

// open begins a stream and returns what the server offers.
func (s *stream) open(domain string) (f features, err error) {
	s.source = &bounded{Reader: s.Conn}
	s.source.reset()
	s.decoder = xml.NewDecoder(s.source)
	err = s.write("<?xml version='1.0'?><stream:stream to='%s' version='1.0' xml:lang='en' xmlns='jabber:client' xmlns:stream='%s'>",
		esc(domain), nsStream)
	if err != nil {
		return f, err
	}
	start, err := s.next()
	if err != nil {
		return f, err
	}
	if start.Name != (xml.Name{Space: nsStream, Local: "stream"}) {
		return f, fmt.Errorf("the server answers with <%s>, which is no XMPP", start.Name.Local)
	}
	if start, err = s.next(); err != nil {
		return f, err
	}
	if start.Name.Local != "features" {
		return f, s.failed(start)
	}
	return f, s.decode(&f, start)
}

// next returns the start of the next element of the stream.
func (s *stream) next() (xml.StartElement, error) {
	s.source.reset()
	for {
		token, err := s.decoder.Token()
		if err != nil {
			return xml.StartElement{}, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			return t, nil
		case xml.EndElement:
			return xml.StartElement{}, io.EOF // of the stream
		case xml.CharData, xml.ProcInst:
		default:
			return xml.StartElement{}, errors.New("the server sent comments or declarations, which XMPP does not have")
		}
	}
}

func (s *stream) decode(v any, start xml.StartElement) error {
	return s.decoder.DecodeElement(v, &start)
}

// failed reads an element that reports an error.
func (s *stream) failed(start xml.StartElement) error {
	var f failure
	if err := s.decode(&f, start); err != nil {
		return err
	}
	return fmt.Errorf("the server answers with <%s>: %s", start.Name.Local, f.String())
}

// write sends XML.
func (s *stream) write(format string, args ...any) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_ = s.SetWriteDeadline(time.Now().Add(writeWait)) // of a closed connection the write fails
	_, err := fmt.Fprintf(s.Conn, format, args...)
	if err != nil {
		_ = s.Close()
	}
	return err
}

func (s *stream) startTLS(ctx context.Context, f features, config *tls.Config) error {
	if f.StartTLS == nil {
		return errors.New("the server offers no TLS (STARTTLS)")
	}
	if err := s.write("<starttls xmlns='%s'/>", nsTLS); err != nil {
		return err
	}
	start, err := s.next()
	if err != nil {
		return err
	}
	if start.Name.Local != "proceed" {
		return s.failed(start)
	}
	// What came in plain text after <proceed/> is dropped: open makes a new decoder.
	secure := tls.Client(s.Conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	s.Conn = secure
	return nil
}

// authenticate proves the account by the best mechanism that the server offers. On a connection
// without TLS, which only reaches this machine, PLAIN is as good.
func (s *stream) authenticate(f features, user, password string) error {
	mechanisms := []sasl.Mechanism{sasl.ScramSha256, sasl.ScramSha1, sasl.Plain}
	at := slices.IndexFunc(mechanisms, func(m sasl.Mechanism) bool { return slices.Contains(f.Mechanisms, m.Name) })
	if at < 0 {
		return fmt.Errorf("the server offers none of the mechanisms SCRAM-SHA-256, SCRAM-SHA-1 and PLAIN, but %q", f.Mechanisms)
	}
	n := sasl.NewClient(mechanisms[at], sasl.Credentials(func() ([]byte, []byte, []byte) { return []byte(user), []byte(password), nil }),
		sasl.RemoteMechanisms(f.Mechanisms...))
	_, first, err := n.Step(nil)
	if err != nil {
		return err
	}
	if err := s.write("<auth xmlns='%s' mechanism='%s'>%s</auth>", nsSASL, mechanisms[at].Name, encoded(first)); err != nil {
		return err
	}
	for {
		start, err := s.next()
		if err != nil {
			return err
		}
		var challenge string
		switch start.Name.Local {
		case "challenge", "success":
			if err := s.decode(&challenge, start); err != nil {
				return err
			}
		default:
			return s.failed(start)
		}
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(challenge))
		if err != nil {
			return err
		}
		done := start.Name.Local == "success"
		if done && mechanisms[at].Name == sasl.Plain.Name {
			return nil
		}
		_, response, err := n.Step(b) // of SCRAM, this verifies that the server knows the password
		if err != nil {
			return fmt.Errorf("SASL: %w", err)
		}
		if done {
			return nil
		}
		if err := s.write("<response xmlns='%s'>%s</response>", nsSASL, encoded(response)); err != nil {
			return err
		}
	}
}

func encoded(b []byte) string {
	if len(b) == 0 {
		return "="
	}
	return base64.StdEncoding.EncodeToString(b)
}

// bind takes the resource, which ends an older connection that has it.
func (s *stream) bind(resource string) error {
	err := s.write("<iq type='set' id='bind'><bind xmlns='%s'><resource>%s</resource></bind></iq>", nsBind, esc(resource))
	if err != nil {
		return err
	}
	start, err := s.next()
	if err != nil {
		return err
	}
	var answer stanza
	if err := s.decode(&answer, start); err != nil {
		return err
	}
	if answer.Type != "result" || answer.Bind == nil {
		return errors.New("the server does not accept the resource")
	}
	s.jid = answer.Bind.JID
	return nil
}

// expect returns a channel for the answer to a stanza with the id.
func (s *stream) expect(id string) (answer <-chan *stanza, forget func()) {
	c := make(chan *stanza, 1)
	s.mu.Lock()
	s.waiting[id] = c
	s.mu.Unlock()
	return c, func() {
		s.mu.Lock()
		delete(s.waiting, id)
		s.mu.Unlock()
	}
}

// answered passes an answer to the one that waits for it.
func (s *stream) answered(m *stanza) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.waiting[m.ID]; ok {
		delete(s.waiting, m.ID)
		c <- m
	}
}

// ask sends an iq and returns the answer. The server ("") answers, or a room.
func (s *stream) ask(ctx context.Context, kind, to, payload string) (*stanza, error) {
	id := rand.Text()
	answer, forget := s.expect(id)
	defer forget()
	address := ""
	if to != "" {
		address = " to='" + esc(to) + "'"
	}
	if err := s.write("<iq type='%s' id='%s'%s>%s</iq>", kind, id, address, payload); err != nil {
		return nil, err
	}
	select {
	case m := <-answer:
		if m.Type == "error" && m.Error != nil {
			return nil, errors.New(m.Error.String())
		}
		return m, nil
	case <-s.lost:
		return nil, errors.New("the connection was lost")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
