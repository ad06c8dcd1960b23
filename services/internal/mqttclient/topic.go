package mqttclient

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxTopic bounds topics and filters, in bytes.
const MaxTopic = 1024

// CheckTopic returns an error if nothing can be published on the topic.
func CheckTopic(topic string) error {
	if err := checkText(topic); err != nil {
		return err
	}
	if strings.ContainsAny(topic, "+#") {
		return fmt.Errorf("%q has a wildcard; name one topic", topic)
	}
	return nil
}

// CheckFilter returns an error if the text is not a topic filter of MQTT.
func CheckFilter(filter string) error {
	if err := checkText(filter); err != nil {
		return err
	}
	levels := strings.Split(filter, "/")
	for i, l := range levels {
		if strings.ContainsAny(l, "+#") && len(l) > 1 || l == "#" && i < len(levels)-1 {
			return fmt.Errorf("%q is not a topic filter: + and # replace whole levels, # the last ones", filter)
		}
	}
	return nil
}

func checkText(topic string) error {
	switch {
	case topic == "":
		return errors.New("it is empty; name a topic such as house/window")
	case len(topic) > MaxTopic:
		return fmt.Errorf("it has %d bytes, at most %d", len(topic), MaxTopic)
	case !utf8.ValidString(topic) || strings.ContainsFunc(topic, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%q is not printable UTF-8", topic)
	}
	return nil
}

// Matches reports whether a topic matches a filter. Topics that begin with $ match no filter
// that begins with a wildcard.
func Matches(filter, topic string) bool {
	f, t := strings.Split(filter, "/"), strings.Split(topic, "/")
	if strings.HasPrefix(topic, "$") && (f[0] == "+" || f[0] == "#") {
		return false
	}
	for i, level := range f {
		if level == "#" {
			return true
		}
		if i >= len(t) || level != "+" && level != t[i] {
			return false
		}
	}
	return len(f) == len(t)
}

// Overlap reports whether a topic can match both filters.
func Overlap(a, b string) bool { return overlap(strings.Split(a, "/"), strings.Split(b, "/")) }

func overlap(a, b []string) bool {
	for i := 0; ; i++ {
		switch {
		case i < len(a) && a[i] == "#" || i < len(b) && b[i] == "#":
			return true
		case i >= len(a) || i >= len(b):
			return len(a) == len(b)
		case a[i] != "+" && b[i] != "+" && a[i] != b[i]:
			return false
		}
	}
}
