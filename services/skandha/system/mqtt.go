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

// startDevices starts the server that speaks MQTT, if it is wanted. It is not the bus: devices reach
// nothing of that. The password is kept across restarts.
func (s *System) startDevices() error {
	if s.cfg.MQTT == "" {
		return nil
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
		return fmt.Errorf("the password of MQTT clients: %s: %w", file, err)
	}
	s.devices, err = natsserver.Start(natsserver.Config{
		StoreDir: filepath.Join(s.cfg.Data, "mqtt"), Sync: natsserver.Sync(s.cfg.Sync), Name: "skandha-mqtt",
		Token: newToken(), MQTT: &natsserver.MQTT{Addr: s.cfg.MQTT, Password: password}, Heal: true, Logger: s.log,
	})
	if err != nil {
		return fmt.Errorf("starting MQTT: %w", err)
	}
	return nil
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
