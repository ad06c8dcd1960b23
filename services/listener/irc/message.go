package irc

import (
	"regexp"
	"strings"
)

// message is a line of the protocol.
type message struct {
	tags    map[string]string
	prefix  string // nick!user@host, or the server's name
	command string // in upper case, or three digits
	params  []string
}

// maxParams is the number of parameters of a line; the last one holds the rest.
const maxParams = 15

// parse reads a line without its end. It returns false if there is no command.
func parse(line string) (m message, ok bool) {
	line = strings.TrimRight(line, "\r\n")
	if tags, found := strings.CutPrefix(line, "@"); found {
		tags, line, _ = strings.Cut(tags, " ")
		m.tags = parseTags(tags)
	}
	line = strings.TrimLeft(line, " ")
	if prefix, found := strings.CutPrefix(line, ":"); found {
		m.prefix, line, _ = strings.Cut(prefix, " ")
	}
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		if last, found := strings.CutPrefix(line, ":"); found || len(m.params) == maxParams-1 {
			m.params = append(m.params, last)
			break
		}
		var param string
		param, line, _ = strings.Cut(line, " ")
		if m.command == "" {
			m.command = strings.ToUpper(param)
		} else {
			m.params = append(m.params, param)
		}
	}
	return m, m.command != ""
}

var unescape = strings.NewReplacer(`\:`, ";", `\s`, " ", `\\`, `\`, `\r`, "\r", `\n`, "\n")

func parseTags(s string) map[string]string {
	out := map[string]string{}
	for tag := range strings.SplitSeq(s, ";") {
		key, value, _ := strings.Cut(tag, "=")
		out[key] = unescape.Replace(value)
	}
	return out
}

// param returns a parameter, or "" if there are fewer.
func (m message) param(i int) string {
	if i < 0 || i >= len(m.params) {
		return ""
	}
	return m.params[i]
}

// nick returns the nickname of the sender.
func (m message) nick() string {
	nick, _, _ := strings.Cut(m.prefix, "!")
	return nick
}

// host returns user@host of the sender; empty if it is a server.
func (m message) host() string {
	_, host, _ := strings.Cut(m.prefix, "!")
	return host
}

// formats are the codes for bold, colours and so on.
var formats = regexp.MustCompile("\x03(?:[0-9]{1,2}(?:,[0-9]{1,2})?)?|\x04(?:[0-9A-Fa-f]{6})?|[\x02\x0f\x11\x16\x1d\x1e\x1f]")

// unformatted returns a text as people read it.
func unformatted(s string) string {
	return strings.TrimSpace(strings.ToValidUTF8(formats.ReplaceAllString(s, ""), "\uFFFD"))
}
