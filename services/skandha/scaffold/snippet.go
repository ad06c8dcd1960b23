package scaffold

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/rights"
)

// SnippetLanguages are the languages of [Snippet].
func SnippetLanguages() []string { return []string{"go", "node", "perl", "python", "shell"} }

// ErrSnippet is the error of a charter for which, or a bus on which, no snippet runs.
var ErrSnippet = errors.New("no such program can be written")

// Invited is who was invited, with what, and where to.
type Invited struct {
	Charter rights.Charter
	Bus     string // URL of the bus
	Token   string
	File    string // in which the program will be; default: the name
}

// asked is something that a snippet hears of.
type asked struct {
	Subject, Subscription string
	Answer                string // if it is a request
}

// snippet are the variables of the templates of snippets.
type snippet struct {
	Name, Token, Host, Port, Address string
	Does, Run                        string // for its readers
	Refused                          string // why the bus refuses the credentials, and what to do
	Input, Answers, Stored           string // of a listener: subjects, and what to say if the bus goes after the input
	Recorded, Failed                 event.Type
	Manifest                         string // of a plugin, without its instance
	Asked                            []asked
}

// Snippet returns a program in one file, which needs only its language's standard library, that does on the bus what
// its charter is for, with its credentials in it. A listener sends the words with which it is started and prints the
// answer. A plugin registers a tool and hooks, prints what it is asked, and unregisters at a signal. Others print what
// happens. They connect again if the bus is gone, and end if it refuses their credentials. The error wraps
// [ErrLanguage] or [ErrSnippet].
func Snippet(lang string, in Invited) (string, error) {
	if !slices.Contains(SnippetLanguages(), lang) {
		return "", fmt.Errorf("%w %q; want one of %s", ErrLanguage, lang, strings.Join(SnippetLanguages(), ", "))
	}
	s, err := in.snippet(lang)
	if err != nil {
		return "", err
	}
	name := lang + ".tmpl"
	t, err := template.New(name).Delims("<<", ">>").Funcs(template.FuncMap{
		"quote": quoted, "sh": single(`'\''`), "perl": single(`\'`),
	}).ParseFS(templates, "snippets/"+name)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, s); err != nil || lang != "go" {
		return b.String(), err
	}
	text, err := format.Source(b.Bytes())
	return string(text), err
}

// quoted is a string literal in Go, JavaScript and Python.
func quoted(v any) string { return strconv.QuoteToASCII(fmt.Sprint(v)) }

// single returns a function that makes a literal in single quotes; quote is how one of these is written in it.
func single(quote string) func(string) string {
	return func(s string) string { return "'" + strings.ReplaceAll(s, "'", quote) + "'" }
}

func (in Invited) snippet(lang string) (s snippet, err error) {
	at, err := url.Parse(in.Bus)
	if err != nil {
		return s, fmt.Errorf("invalid URL of the bus: %w", errors.Unwrap(err)) // the whole error could show a token
	}
	if at.Scheme != "nats" {
		return s, fmt.Errorf("%w: the bus at %s has TLS, which these programs do not speak; write one from --for env or --for file "+
			"with a client library of NATS, or from %s", ErrSnippet, at.Redacted(), "skandha plugins new")
	}
	c := in.Charter
	s = snippet{
		Name: string(c.Name), Token: in.Token, Host: at.Hostname(), Port: cmp.Or(at.Port(), "4222"),
		Recorded: event.TypeRecorded, Failed: event.TypeTurnFailed,
	}
	s.Address = s.Host + ":" + s.Port
	s.Refused = fmt.Sprintf("the credentials of %s are revoked, replaced or expired; to get new ones: skandha plugins invite %s",
		s.Name, s.Name)
	run := map[string]string{"go": "go run %s", "node": "node %s", "perl": "perl %s", "python": "python3 %s", "shell": "bash %s"}
	s.Run = fmt.Sprintf(run[lang], filepath.Base(cmp.Or(in.File, s.Name+extensions[lang])))
	m, err := s.plugin(c)
	switch {
	case err != nil:
		return s, err
	case m != nil:
		s.Manifest = string(m)
		s.Does = s.Name + " is a plugin: it registers, prints what it is asked, and answers that."
	case len(c.Listeners) > 0:
		w, a := c.Listeners[0], first(c.Agents, "main")
		ref := subject.Ref{Agent: a, Session: first(c.Sessions, subject.Session(c.Name))}
		s.Input = ref.Cause(subject.Input, w)
		s.Stored = fmt.Sprintf("the bus is gone; the input is safe, and its answer will be in the session %s", ref.Session)
		s.Answers = fmt.Sprintf("answer.%s.%s.%s.*.*", w, ref.Agent, ref.Session)
		s.Does, s.Run = fmt.Sprintf("%s says something to the agent %s, and prints the answer.", s.Name, a), s.Run+" 'what is 2+2?'"
	default:
		s.follow(c)
		s.Does = s.Name + " prints what happens."
	}
	if s.Input == "" && len(s.Asked) == 0 {
		return s, fmt.Errorf("%w: it would have nothing to do; grant one of --listener, --tools, --hooks, --see and --session, "+
			"or write a plugin with skandha plugins new", ErrSnippet)
	}
	return s, nil
}

// extensions are those of the files of snippets.
var extensions = map[string]string{"go": ".go", "node": ".cjs", "perl": ".pl", "python": ".py", "shell": ".sh"}

func first[T ~string](list []T, or T) T {
	if len(list) > 0 {
		return list[0]
	}
	return or
}

// plugin lets the snippet be asked what the charter grants; the manifest is nil if that is nothing.
func (s *snippet) plugin(c rights.Charter) (manifest []byte, err error) {
	name := subject.Plugin(c.Name)
	m := plugin.Manifest{Name: name, Version: "0.1.0"}
	for _, granted := range c.Hooks {
		at, mark, _ := strings.Cut(granted, ":")
		if at == rights.Any {
			at = string(hook.BeforeAct)
		}
		if slices.ContainsFunc(m.Hooks, func(h plugin.Hook) bool { return string(h.Point) == at }) {
			continue
		}
		fails := hook.Allow
		if mark == rights.Judge && hook.Point(at).Deniable() {
			fails = hook.Deny // one that is silent is for the configuration to require
		}
		m.Hooks = append(m.Hooks, plugin.Hook{Point: hook.Point(at), DeadlineMS: 1000, OnError: fails})
		s.asked(subject.Hook(at, name), name, `{"verb":"continue"}`)
	}
	for _, space := range c.Tools {
		if space == rights.Any {
			space = string(name)
		}
		t := space + ":hello"
		m.Tools = append(m.Tools, tool.Spec{
			Name: t, Description: "Says hello.", Args: json.RawMessage(`{"type":"object"}`), Idempotent: true, TimeoutMS: 5000,
		})
		s.asked(subject.Tool(name, t), name, `{"success":true,"data":{"text":"hello"}}`)
	}
	if len(m.Hooks)+len(m.Tools) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	delete(fields, "instance") // new at each start
	return json.Marshal(fields)
}

// asked adds a request that one of the plugin's processes gets.
func (s *snippet) asked(subj string, group subject.Plugin, answer string) {
	s.Asked = append(s.Asked, asked{Subject: subj, Subscription: subj + " " + string(group), Answer: answer})
}

// follow lets the snippet hear what the charter lets it see.
func (s *snippet) follow(c rights.Charter) {
	agents, sessions := []subject.Agent{rights.Any}, c.Sessions
	if len(c.Agents) > 0 {
		agents = c.Agents
	}
	if c.See {
		sessions = []subject.Session{rights.Any}
	}
	for _, a := range agents {
		for _, session := range sessions {
			subj := fmt.Sprintf("agent.%s.%s.*.*", a, session)
			s.Asked = append(s.Asked, asked{Subject: subj, Subscription: subj})
		}
	}
}
