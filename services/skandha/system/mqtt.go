package system

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/internal/natsserver"
)

// mqttFile is the file in the data directory with the password of MQTT clients.
const mqttFile = "mqtt.password"

// MQTTPasswordFile is the file with the password of MQTT clients.
func (s *System) MQTTPasswordFile() string { return filepath.Join(s.cfg.Data, mqttFile) }

// mqtt returns where the bus speaks MQTT; nil: nowhere. The password is kept across restarts.
func (s *System) mqtt() (*natsserver.MQTT, error) {
	if s.cfg.MQTT == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	file := s.MQTTPasswordFile()
	kept, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		kept = []byte(newToken())
		err = os.WriteFile(file, append(kept, '\n'), 0o600)
	}
	password := strings.TrimSpace(string(kept))
	if err == nil && password == "" {
		err = errors.New("it is empty; remove it to get a new one")
	}
	if err != nil {
		return nil, fmt.Errorf("the password of MQTT clients: %s: %w", file, err)
	}
	return &natsserver.MQTT{Addr: s.cfg.MQTT, Password: password}, nil
}

// brokers returns the brokers of the configuration, and the one that this system runs.
func (s *System) brokers(configured mqttclient.Config) (mqttclient.Config, error) {
	out := mqttclient.Config{}
	for name, b := range configured {
		out[name] = b
	}
	if s.cfg.MQTT == "" {
		return out, nil
	}
	host, port, err := net.SplitHostPort(s.cfg.MQTT)
	if err != nil {
		return nil, fmt.Errorf("mqtt address %q: %w", s.cfg.MQTT, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	own := out[mqttclient.Embedded] // what may be published is configured
	own.URL, own.User, own.Password = "mqtt://"+net.JoinHostPort(host, port), "skandha", "file:"+s.MQTTPasswordFile()
	out[mqttclient.Embedded] = own
	return out, nil
}
