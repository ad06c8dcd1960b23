package mqtt

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/listener/mapping"
)

// Config of a listener.
type Config struct {
	Broker        string           `yaml:"broker"`    // one of the section mqtt; default the only one, else that of skandha up --mqtt
	ClientID      string           `yaml:"client_id"` // default skandha-<listener>
	QoS           *int             `yaml:"qos"`       // 1 (default): what arrives is not lost; 0: it may be
	Topics        map[string]Topic `yaml:"topics"`    // the rules, by name
	HomeAssistant *HomeAssistant   `yaml:"home_assistant"`
}

// Topic is the rule for the messages of a topic filter.
type Topic struct {
	Topic          string `yaml:"topic"`    // filter, with the wildcards + and #
	Retained       bool   `yaml:"retained"` // retained messages count, once for each value
	mapping.Config `yaml:",inline"`
}

// HomeAssistant announces the agent by MQTT discovery.
type HomeAssistant struct {
	Prefix  string `yaml:"prefix"`  // of the discovery topics; default homeassistant
	Agent   string `yaml:"agent"`   // default main
	Session string `yaml:"session"` // that what is said goes to, and whose state is shown; required
}

// discoveryRule is the name of the rule for what is said in Home Assistant.
const discoveryRule = "home_assistant"

// maxSaid bounds what is said in Home Assistant, in bytes, as Home Assistant does.
const maxSaid = 255

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate(name subject.Writer) error {
	var errs []error
	if c.Broker != "" && !subject.Valid(c.Broker) {
		errs = append(errs, fmt.Errorf("broker: %q is not a valid id", c.Broker))
	}
	if len(c.ClientID) > 128 || strings.ContainsFunc(c.ClientID, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("+#/", r) }) {
		errs = append(errs, errors.New("client_id: want up to 128 printable ASCII characters except +, # and /"))
	}
	if c.QoS != nil && *c.QoS != 0 && *c.QoS != 1 {
		errs = append(errs, fmt.Errorf("qos is %d, want 0 or 1", *c.QoS))
	}
	if len(c.Topics) == 0 && c.HomeAssistant == nil {
		errs = append(errs, errors.New("topics is empty; name a topic, or set home_assistant"))
	}
	names := slices.Sorted(maps.Keys(c.Topics))
	for i, n := range names {
		errs = append(errs, c.checkTopic(n))
		for _, other := range names[:i] {
			a, b := c.Topics[n].Topic, c.Topics[other].Topic
			if a != b && mqttclient.Overlap(a, b) {
				errs = append(errs, fmt.Errorf("topics.%s.topic: %q overlaps %q of %s; use equal ones, or another listener",
					n, a, b, other))
			}
		}
	}
	if h := c.HomeAssistant; h != nil {
		if err := h.withDefaults().rule(topicsOf(name)).Config.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("home_assistant.%w", err))
		}
		if err := mqttclient.CheckTopic(h.withDefaults().Prefix); err != nil {
			errs = append(errs, fmt.Errorf("home_assistant.prefix: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (c Config) checkTopic(name string) error {
	var errs []error
	if !subject.Valid(name) || name == discoveryRule {
		errs = append(errs, fmt.Errorf("topics.%s: the name is not a valid id; use 1 to %d characters of A-Z a-z 0-9 _ -",
			name, subject.MaxIDLen))
	}
	t := c.Topics[name]
	if err := mqttclient.CheckFilter(t.Topic); err != nil {
		errs = append(errs, fmt.Errorf("topics.%s.topic: %w", name, err))
	}
	if err := t.Config.Validate(); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			errs = append(errs, errors.New("topics."+name+"."+line))
		}
	}
	return errors.Join(errs...)
}

func (h HomeAssistant) withDefaults() HomeAssistant {
	h.Prefix, h.Agent = cmp.Or(h.Prefix, "homeassistant"), cmp.Or(h.Agent, "main")
	return h
}

// rule is the rule for what is said in Home Assistant.
func (h HomeAssistant) rule(own topics) Topic {
	return Topic{Topic: own.say, Config: mapping.Config{Agent: h.Agent, Session: h.Session, TextTemplate: "{{.text}}"}}
}

// topics are the listener's own.
type topics struct{ base, say, state, answer, status string }

func topicsOf(name subject.Writer) topics {
	base := "skandha/" + string(name)
	return topics{base + "/", base + "/say", base + "/state", base + "/answer", base + "/status"}
}

// broker finds the broker of the configuration.
func (c Config) broker(all mqttclient.Config) (mqttclient.Broker, error) {
	name := c.Broker
	if name == "" {
		configured := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool { return n == mqttclient.Embedded })
		switch {
		case len(configured) == 1:
			name = configured[0]
		case len(configured) > 1:
			return mqttclient.Broker{}, fmt.Errorf("broker is empty; name one of %s", strings.Join(configured, ", "))
		default:
			name = mqttclient.Embedded
		}
	}
	b, ok := all[name]
	switch {
	case ok:
		return b, nil
	case name == mqttclient.Embedded:
		return b, errors.New("broker: the section mqtt names none; add one, or start with skandha up --mqtt 127.0.0.1:1883")
	}
	return b, fmt.Errorf("broker is %q, which the section mqtt does not have", name)
}
