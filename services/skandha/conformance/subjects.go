package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/subject"
)

// subjects checks what all processes have subscribed to and published on.
func (s *suite) subjects(_ context.Context, c *check) {
	seen := map[string]bool{}
	for _, p := range s.ran {
		for _, e := range p.tap.all() {
			what := e.verb + " " + e.subject
			if !e.sent || seen[what] {
				continue
			}
			seen[what] = true
			switch {
			case e.verb == "SUB":
				if why := s.overhears(e.subject); why != "" {
					c.fail("subscriptions only to its own subjects", "SUB "+e.subject, why)
				}
			case e.carries():
				if why := s.intrudes(e.subject); why != "" {
					c.fail("messages only on its own subjects", "PUB "+e.subject, why)
				}
			}
		}
	}
}

// overhears returns why the plugin may not make a subscription; empty: it may. A plugin that
// follows sessions subscribes to agent.> and stream.>; JetStream and inboxes are allowed.
func (s *suite) overhears(subj string) (why string) {
	t := append(strings.Split(subj, "."), "", "", "")
	me := string(s.name())
	switch t[0] {
	case ">", "*":
		return "name the first token: this receives the messages of all other plugins"
	case "hook":
		if t[2] == me {
			return ""
		}
	case "tool", "llm", "storage", "guide":
		if t[1] == me {
			return ""
		}
	case "reply":
		if t[1] == me {
			return ""
		}
		return "subscribe to reply." + me + ".*.<instance>.*, which begins with the plugin's own name: " +
			"answers to others are not for it"
	case "media":
		return "frames of people's cameras are for camera listeners only; call the tool camera:look instead"
	case "plugin", "service", "runner", "provider", "discover":
	default:
		return ""
	}
	return fmt.Sprintf("subscribe to hook.<point>.%[1]s, tool.%[1]s.<tool>, "+
		"llm.%[1]s.generate, storage.%[1]s.<verb> and guide.%[1]s only, "+
		"and to the tool and llm subjects also with the plugin's own instance at the end", me)
}

// intrudes returns why the plugin may not publish on a subject; empty: it may.
func (s *suite) intrudes(subj string) (why string) {
	t := append(strings.Split(subj, "."), "", "", "")
	switch t[0] {
	case "plugin":
		if t[2] != string(s.name()) {
			return "send requests to the registry under the plugin's own name, " + string(s.name())
		}
	case "agent":
		cause, err := subject.ParseCause(subj)
		if err != nil {
			return "only core writes commits and live events; a listener writes agent.<agent>.<session>.sense.input.<listener>"
		}
		if !s.declares(cause.Writer) {
			return fmt.Sprintf("declare %s among the manifest's listeners or sensors: a writer's name is owned", cause.Writer)
		}
	case "media":
		return "only the UI bridge publishes there"
	case "stream", "announce", "runner", "provider", "discover":
		return "only core and executors publish there"
	case "$KV":
		return "only cores write the registry; send requests by plugin.register, plugin.heartbeat and plugin.unregister"
	}
	return ""
}

func (s *suite) declares(w subject.Writer) bool {
	for _, l := range slices.Concat(s.manifest.Listeners, s.manifest.Sensors) {
		if l.Name == w {
			return true
		}
	}
	return false
}

// replies checks each answer against the questions that the process received. Answers
// that may have been lost with a connection may be sent again when it is back, and once
// more when the callers are back, too.
func (s *suite) replies(_ context.Context, c *check) {
	for _, p := range s.ran {
		given, sent, again := map[string]int{}, map[string]int{}, 0
		for _, e := range p.tap.all() {
			if e.sent && e.verb == "CONNECT" && len(given) > 0 {
				clear(sent)
				again = 1
			}
			if !e.carries() {
				continue
			}
			if !e.sent {
				given[e.reply]++ // a question may be repeated
				continue
			}
			if !strings.HasPrefix(e.subject, "reply.") {
				continue
			}
			switch sent[e.subject]++; {
			case given[e.subject] == 0:
				c.fail("answers only on the reply subject of a question",
					fmt.Sprintf("a message on %s, which no question gave: %s", e.subject, quote(e.body)),
					"publish the answer on the exact reply subject of the question")
			case sent[e.subject] == given[e.subject]+again+1:
				c.fail("one answer to a question", fmt.Sprintf("%d on %s, the last: %s", sent[e.subject], e.subject, quote(e.body)),
					"answer once: the first one counts")
			}
		}
	}
}

// protocol reports the errors that the bus sent.
func (s *suite) protocol(_ context.Context, c *check) {
	for _, p := range s.ran {
		for _, e := range p.tap.all() {
			// A connection that was not used in time means that the machine is slow: a plugin that
			// never sends CONNECT does not register.
			text := strings.ToLower(e.text)
			if !e.sent && e.verb == "-ERR" && !strings.Contains(text, "shutdown") &&
				!strings.Contains(text, "authentication timeout") {
				c.fail("no error from the bus", "-ERR "+e.text,
					"see NATS's client protocol; the length in PUB is in bytes, and PING requires a PONG")
			}
		}
	}
}
