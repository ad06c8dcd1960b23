package examples_test

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/natstest"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheReadmeNamesEveryProgramAndNoOther(t *testing.T) {
	text := readme(t)
	named := regexp.MustCompile("`((?:python|node|shell)/[a-z_]+\\.(?:py|mjs|sh))").FindAllStringSubmatch(
		strings.NewReplacer("`python3 ", "`", "`node ", "`").Replace(text), -1)
	there := map[string]bool{}
	for lang, suffix := range map[string]string{"python": ".py", "node": ".mjs", "shell": ".sh"} {
		for _, f := range foreigntest.Files(t, lang, suffix) {
			if !strings.Contains(f, "node_modules") {
				there[filepath.ToSlash(f)] = false
			}
		}
	}
	for _, m := range named {
		if _, is := there[m[1]]; !is {
			t.Errorf("README.md names %s, which is not there", m[1])
		}
		there[m[1]] = true
	}
	for f, is := range there {
		if !is {
			t.Errorf("README.md does not name %s", f)
		}
	}
}

func TestTheReadmeEncodesNamesAsTheContractDoes(t *testing.T) {
	_, table, ok := strings.Cut(readme(t), "| name | token |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := regexp.MustCompile("(?m)^\\| `(.+)` \\| `(.+)` \\|$").FindAllStringSubmatch(table, -1)
	if !ok || len(rows) < 5 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, r := range rows {
		if got := subject.Encode(r[1]); got != r[2] {
			t.Errorf("README.md encodes %q as %q, want %q", r[1], r[2], got)
		}
	}
}

func TestTheReadmeNamesSchemasThatAreThere(t *testing.T) {
	const schemas = "../../../schemas"
	found := regexp.MustCompile("`((?:[a-z]+/)?[a-z_.0-9]+\\.json)`").FindAllStringSubmatch(readme(t), -1)
	if len(found) < 15 {
		t.Fatalf("README.md names %d schemas", len(found))
	}
	for _, m := range found {
		if m[1] == "package.json" {
			continue
		}
		if _, err := os.Stat(filepath.Join(schemas, m[1])); err != nil {
			t.Errorf("README.md names %s: %v", m[1], err)
		}
	}
}

// wire speaks the dialogue of README.md with a live system, byte for byte but for
// what it leaves open.
type wire struct {
	t     *testing.T
	conn  net.Conn
	in    *bufio.Reader
	token string
	hash  string // of the last lease
	reply string // subject of the last call
}

func TestTheDialogueOfTheReadme(t *testing.T) {
	_, dialogue, ok := strings.Cut(readme(t), "```nats\n")
	dialogue, _, _ = strings.Cut(dialogue, "```")
	if !ok {
		t.Fatal("README.md has no dialogue")
	}
	s := foreigntest.Start(t)
	u, err := url.Parse(s.JoinAs("clock"))
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, token: u.User.Username()}
	if w.conn, err = new(net.Dialer).DialContext(natstest.Context(t), "tcp", u.Host); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.conn.Close() }()
	if err := w.conn.SetDeadline(time.Now().Add(natstest.Patience)); err != nil {
		t.Fatal(err)
	}
	w.in = bufio.NewReader(w.conn)
	w.hear(`INFO \{.*\}`)
	answered := make(chan foreigntest.End, 1)
	for line := range strings.Lines(dialogue) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "> "):
			w.say(line[2:])
		case strings.HasPrefix(line, "< "):
			w.hear(strings.ReplaceAll(regexp.QuoteMeta(line[2:]), "…", ".+?"))
		case line == "# now the model calls the tool":
			s.AwaitTool("clock:now", true)
			go func() { answered <- s.Say("readme", "call clock:now {}") }()
		default:
			t.Fatalf("what is %q?", line)
		}
	}
	if end := <-answered; len(end.Calls) != 1 || !end.Calls[0].Success || !strings.Contains(end.Answer, "8:00 am") {
		t.Errorf("the call of the dialogue: %+v", end)
	}
	s.LeftNothing("clock")
}

func (w *wire) say(line string) {
	w.t.Helper()
	switch {
	case strings.HasPrefix(line, "CONNECT"):
		line = strings.ReplaceAll(line, "…", w.token)
	case strings.HasPrefix(line, "PUB reply."):
		line = regexp.MustCompile(`^PUB \S+`).ReplaceAllString(line, "PUB "+w.reply)
	default:
		line = strings.ReplaceAll(line, "…", w.hash)
	}
	if _, err := fmt.Fprintf(w.conn, "%s\r\n", line); err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("> %s", line)
}

func (w *wire) hear(pattern string) {
	w.t.Helper()
	line := "PING"
	for line == "PING" {
		got, err := w.in.ReadString('\n')
		if err != nil {
			w.t.Fatalf("waiting for %s: %v", pattern, err)
		}
		if line = strings.TrimRight(got, " \r\n"); line == "PING" {
			w.say("PONG")
		}
	}
	w.t.Logf("< %s", line)
	if !regexp.MustCompile("^" + pattern + "$").MatchString(line) {
		w.t.Fatalf("the server says %s\nREADME.md says %s", line, pattern)
	}
	if m := regexp.MustCompile(`"hash":"([0-9a-f]+)"`).FindStringSubmatch(line); m != nil {
		w.hash = m[1]
	}
	if f := strings.Fields(line); f[0] == "MSG" && len(f) == 5 {
		w.reply = f[3]
	}
}
