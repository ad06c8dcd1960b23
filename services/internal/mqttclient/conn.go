package mqttclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/eclipse/paho.mqtt.golang/packets"

	"skandha.dev/services/internal/bounds"
)

// The times of a connection.
const (
	dialWait  = 10 * time.Second
	keepAlive = 20 * time.Second
	pingWait  = 10 * time.Second
)

// refused is what a broker answers to a subscription that it does not grant.
const refused = 0x80

// ErrRefused means that the broker does not let this client in, or does not grant a
// subscription.
var ErrRefused = errors.New("refused by the broker")

// Message is a message that is published or received.
type Message struct {
	Topic   string
	Payload []byte // if it was too large: its beginning, one byte longer than the broker's max_payload
	QoS     byte
	Retain  bool // of a received message: it was retained, and is not news

	Duplicate bool   // the broker has sent it before
	ID        uint16 // of the packet; 0 for QoS 0

	ack func()
}

// Ack acknowledges a received message. Once the connection is lost it does nothing.
func (m Message) Ack() {
	if m.ack != nil {
		m.ack()
	}
}

// Options of a connection.
type Options struct {
	ClientID string
	// Clean: the broker keeps nothing for this client id, and forgets what it has kept.
	Clean bool
	// Will is published by the broker when the connection is lost; nil: nothing.
	Will *Message
	// Receive is called for each message, one after the other. While it does not return,
	// nothing more is received.
	Receive func(Message)
}

// Conn is one connection to a broker.
type Conn struct {
	client mqtt.Client
	kept   bool
	done   chan struct{}
	once   sync.Once
	err    error
}

// Dial connects to the broker.
func (b Broker) Dial(ctx context.Context, o Options) (*Conn, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	b = bounds.Filled(b)
	a, err := b.access()
	if err != nil {
		return nil, err
	}
	address, err := b.address()
	if err != nil {
		return nil, err
	}
	c := &Conn{done: make(chan struct{})}
	opts := mqtt.NewClientOptions().AddBroker(address).SetClientID(o.ClientID).SetProtocolVersion(4).
		SetCleanSession(o.Clean).SetAutoReconnect(false).SetConnectRetry(false).SetConnectTimeout(dialWait).
		SetKeepAlive(keepAlive).SetPingTimeout(pingWait).SetWriteTimeout(writeTimeout).
		SetOrderMatters(true).SetAutoAckDisabled(true).SetUsername(b.User).SetPassword(a.password).
		SetConnectionLostHandler(func(_ mqtt.Client, err error) { c.end(err) }).
		SetCustomOpenConnectionFn(func(u *url.URL, _ mqtt.ClientOptions) (net.Conn, error) {
			return open(ctx, u.Host, a.tls, b.MaxPayload)
		}).
		SetDefaultPublishHandler(func(_ mqtt.Client, m mqtt.Message) {
			if o.Receive != nil {
				o.Receive(Message{
					Topic: m.Topic(), Payload: m.Payload(), QoS: m.Qos(), Retain: m.Retained(), Duplicate: m.Duplicate(),
					ID: m.MessageID(), ack: m.Ack,
				})
			}
		})
	if w := o.Will; w != nil {
		opts.SetBinaryWill(w.Topic, w.Payload, w.QoS, w.Retain)
	}
	c.client = mqtt.NewClient(opts)
	token, ok := c.client.Connect().(*mqtt.ConnectToken)
	if !ok {
		return nil, errors.New("connecting: unexpected token of the library")
	}
	if err := wait(ctx, token); err != nil {
		go c.client.Disconnect(0) // it may wait for the handshake
		var code byte
		select {
		case <-token.Done():
			code = token.ReturnCode()
		default: // it may still be written
		}
		return nil, connectError(b, code, err)
	}
	c.kept = token.SessionPresent()
	return c, nil
}

// open makes the network connection.
func open(ctx context.Context, host string, conf *tls.Config, maxPayload int64) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialWait, KeepAlive: keepAlive}
	conn, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	if conf == nil {
		return newGuard(conn, maxPayload), nil
	}
	conf = conf.Clone()
	conf.ServerName, _, _ = net.SplitHostPort(host) // built by Broker.address
	secure := tls.Client(conn, conf)
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // err says why
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return newGuard(secure, maxPayload), nil
}

// connectError says what to do about a connection that failed.
func connectError(b Broker, code byte, err error) error {
	switch code {
	case packets.ErrRefusedBadUsernameOrPassword, packets.ErrRefusedNotAuthorised:
		return fmt.Errorf("connecting to %s: %w: correct user and password", b.URL, ErrRefused)
	case packets.ErrRefusedIDRejected:
		return fmt.Errorf("connecting to %s: %w: it rejects the client id", b.URL, ErrRefused)
	case packets.ErrRefusedBadProtocolVersion:
		return fmt.Errorf("connecting to %s: %w: it does not speak MQTT 3.1.1", b.URL, ErrRefused)
	}
	text := strings.TrimPrefix(err.Error(), packets.ConnErrors[packets.ErrNetworkError].Error()+" : ")
	return fmt.Errorf("connecting to %s: %s", b.URL, text)
}

// wait waits for a token.
func wait(ctx context.Context, t mqtt.Token) error {
	select {
	case <-t.Done():
		return t.Error()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Conn) end(err error) {
	c.once.Do(func() { c.err = err; close(c.done) })
}

// Kept reports whether the broker has kept the client's session: its subscriptions, and the
// messages that it did not acknowledge.
func (c *Conn) Kept() bool { return c.kept }

// Done is closed when the connection is lost or closed.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns, once Done is closed, why the connection was lost.
func (c *Conn) Err() error { return c.err }

// Subscribe subscribes to topic filters, each with its highest QoS. The error names those that
// the broker does not grant.
func (c *Conn) Subscribe(ctx context.Context, filters map[string]byte) error {
	token, ok := c.client.SubscribeMultiple(filters, nil).(*mqtt.SubscribeToken)
	if !ok {
		return errors.New("subscribing: unexpected token of the library")
	}
	if err := c.settled(ctx, token); err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	var denied []string
	for filter, qos := range token.Result() {
		if qos == refused {
			denied = append(denied, filter)
		}
	}
	if slices.Sort(denied); len(denied) > 0 {
		return fmt.Errorf("subscribing to %s: %w: grant this user the topics", strings.Join(denied, ", "), ErrRefused)
	}
	return nil
}

// Publish publishes a message and returns when the broker has it, or, with QoS 0, when it is
// sent.
func (c *Conn) Publish(ctx context.Context, m Message) error {
	if err := c.settled(ctx, c.client.Publish(m.Topic, m.QoS, m.Retain, m.Payload)); err != nil {
		return fmt.Errorf("publishing on %s: %w", m.Topic, err)
	}
	return nil
}

// settled waits for a token, or until the connection is lost.
func (c *Conn) settled(ctx context.Context, t mqtt.Token) error {
	select {
	case <-t.Done():
		return t.Error()
	case <-c.done:
		return cmp.Or(c.err, errors.New("the connection was closed"))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close disconnects, after what is to be sent has been sent or the time has passed. The broker
// does not publish the will.
func (c *Conn) Close(grace time.Duration) {
	c.client.Disconnect(uint(max(0, grace.Milliseconds()))) //nolint:gosec // not negative
	c.end(errors.New("the connection was closed"))
}
