package natsserver

import (
	"cmp"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

// mqttAccount is the account of MQTT clients. Their topics are subjects of this account
// alone: a device reaches nothing of the bus.
const mqttAccount = "MQTT"

// MQTT is where the server accepts MQTT clients.
type MQTT struct {
	Addr     string // host:port; the port must be set
	Password string // required of clients, with any user name
}

func (m *MQTT) validate(token string) error {
	if m == nil {
		return nil
	}
	_, port, err := splitAddr(m.Addr)
	switch {
	case token == "":
		return errors.New("nats.mqtt requires nats.token, which MQTT clients do not have; set it")
	case err != nil:
		return fmt.Errorf("nats.mqtt: %w", err)
	case port <= 0:
		return fmt.Errorf("nats.mqtt.addr %q: name a port, for example 1883", m.Addr)
	case m.Password == "":
		return errors.New("nats.mqtt.password is empty; set what MQTT clients must show")
	}
	return nil
}

// offerMQTT adds MQTT to the server's options.
func (c Config) offerMQTT(o *server.Options) *authenticator {
	if c.MQTT == nil {
		return nil
	}
	o.MQTT.Host, o.MQTT.Port, _ = splitAddr(c.MQTT.Addr) // checked by Validate
	o.MQTT.Host = cmp.Or(o.MQTT.Host, "0.0.0.0")
	a := &authenticator{token: c.Token, mqtt: c.MQTT.Password}
	o.Authorization, o.CustomClientAuthentication = "", a
	return a
}

// authenticator lets clients into the account that what they show is for. The server's own
// authentication knows a token for one account alone.
type authenticator struct {
	token, mqtt string
	srv         *server.Server
}

// Check implements [server.Authentication].
func (a *authenticator) Check(c server.ClientAuthentication) bool {
	shown := c.GetOpts()
	var account *server.Account
	switch {
	case shown.Password != "" && same(shown.Password, a.mqtt):
		account, _ = a.srv.LookupOrRegisterAccount(mqttAccount)
	case shown.Password == "" && same(shown.Token, a.token): // MQTT clients have a password
		account = a.srv.GlobalAccount()
	default:
		return false
	}
	c.RegisterUser(&server.User{Account: account})
	return true
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// enable lets the account of MQTT clients store.
func (a *authenticator) enable() error {
	if a == nil {
		return nil
	}
	account, _ := a.srv.LookupOrRegisterAccount(mqttAccount)
	if account.JetStreamEnabled() {
		return nil
	}
	if err := account.EnableJetStream(nil, nil); err != nil {
		return fmt.Errorf("enabling storage for MQTT: %w", err)
	}
	return nil
}
