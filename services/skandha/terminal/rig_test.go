package terminal

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/proposal"
)

var ref = subject.Ref{Agent: "main", Session: "s"}

// rig is a model without a terminal: what it asks of the world is written down.
type rig struct {
	t     *testing.T
	m     *model
	now   time.Time
	did   chan string // calls of the client
	away  bool
	fault string
	fails error
	ids   int
}

func newRig(t *testing.T, change func(*Config)) *rig {
	r := &rig{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), did: make(chan string, 16)}
	cfg := Config{
		Client: r, Ref: ref, Writer: "me", About: "a test", History: t.TempDir() + "/history",
		Commands: []Command{
			{Name: "help", Help: "list the commands"},
			{Name: "replay", Args: "[n]", Help: "an account"},
			{Name: "reset", Help: "forget"},
		},
		Now: func() time.Time { return r.now }, NewID: func() string { r.ids++; return fmt.Sprint("id", r.ids) },
	}
	if change != nil {
		change(&cfg)
	}
	r.m = newModel(cfg)
	r.m.reach = func(f func(context.Context) tea.Msg) tea.Cmd { f(t.Context()); return nil }
	r.m.Init()
	r.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	r.later(time.Second)
	return r
}

func (r *rig) ask(format string, args ...any) error {
	r.did <- fmt.Sprintf(format, args...)
	return r.fails
}

func (r *rig) Say(_ context.Context, in event.Input) (uint64, error) {
	return 7, r.ask("say %s %q %s", in.ID, in.Text, in.Source)
}

func (r *rig) Run(_ context.Context, c event.Command) (uint64, error) {
	return 8, r.ask("run %s %s %q", c.ID, c.Name, c.Args)
}

func (r *rig) Answer(_ context.Context, a event.Confirmation) error {
	always := ""
	if a.Always != nil {
		always = " always " + proposal.Grant(*a.Always)
	}
	return r.ask("answer %s %s %v %q%s", a.ConfirmationID, a.Hash, a.Approved, a.Reason, always)
}

func (r *rig) Cancel(_ context.Context, seq uint64) error { return r.ask("cancel %d", seq) }

func (r *rig) Describe(context.Context, string) (string, error) { return "its own words", r.fails }
func (r *rig) Fault() string                                    { return r.fault }
func (r *rig) Connected() bool                                  { return !r.away }

// send passes messages to the model, which calls the client at once.
func (r *rig) send(msgs ...tea.Msg) {
	for _, msg := range msgs {
		r.m.Update(msg)
		r.m.View()
	}
}

// later lets time pass, and a tick come.
func (r *rig) later(d time.Duration) {
	r.now = r.now.Add(d)
	r.send(tick{r.m.ticks}, tea.Println("")(), printed{})
}

func (r *rig) event(turn string, p event.Payload) {
	e := event.New(ref, "e", "test", p)
	e.Turn = turn
	r.send(items{{Event: e}})
}

// begin has a turn begin, of the input at 5 that another has said.
func (r *rig) begin() {
	r.event("t5", event.Perceived{Sequence: 5, Writer: "you", Source: "web", Text: "x", Disposition: event.Started})
}

func (r *rig) request(id string, grants ...event.Grant) {
	r.event("t5", event.ToolCallRequest{
		ToolName: "mail:send", Args: json.RawMessage(`{"to":"bob"}`), ConfirmationID: id, Hash: "hash-" + id,
		ExpiresAt: r.now.Add(time.Minute), SecurityWarning: &hook.Warning{Level: hook.LevelCritical, Message: "it leaves"},
		Always: grants,
	})
}

func (r *rig) delta(d provider.Delta) { r.send(items{{Delta: &d}}) }

func (r *rig) keys(keys ...string) {
	for _, k := range keys {
		r.send(keyPress(k))
	}
}

func keyPress(name string) tea.KeyPressMsg {
	switch name {
	case "enter":
		return tea.KeyPressMsg{Code: tea.KeyEnter}
	case "alt+enter":
		return tea.KeyPressMsg{Code: tea.KeyEnter, Mod: tea.ModAlt}
	case "esc":
		return tea.KeyPressMsg{Code: tea.KeyEscape}
	case "tab":
		return tea.KeyPressMsg{Code: tea.KeyTab}
	case "up":
		return tea.KeyPressMsg{Code: tea.KeyUp}
	case "down":
		return tea.KeyPressMsg{Code: tea.KeyDown}
	case "space":
		return tea.KeyPressMsg{Code: ' ', Text: " "}
	}
	if c, ok := strings.CutPrefix(name, "ctrl+"); ok {
		return tea.KeyPressMsg{Code: rune(c[0]), Mod: tea.ModCtrl}
	}
	return tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
}

func (r *rig) typed(text string) {
	for _, c := range text {
		r.send(tea.KeyPressMsg{Code: c, Text: string(c)})
	}
}

// asked is the calls of the client.
func (r *rig) asked(want string) {
	r.t.Helper()
	select {
	case got := <-r.did:
		if got != want {
			r.t.Fatalf("the client was asked for %s, want %s", got, want)
		}
	default:
		r.t.Fatalf("the client was not asked for %s", want)
	}
}

// idle fails if the client was asked for something.
func (r *rig) idle() {
	r.t.Helper()
	select {
	case got := <-r.did:
		r.t.Fatalf("the client was asked for %s", got)
	default:
	}
}

func (r *rig) view() string { return ansi.Strip(r.m.View().Content) }

// text is everything that was printed.
func (r *rig) text() string {
	var all []string
	for _, b := range r.m.printer.kept {
		all = append(all, plain(b(79)))
	}
	return strings.Join(all, "\n")
}

func (r *rig) sees(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.view(), text) {
			r.t.Fatalf("%q is not seen:\n%s", text, r.view())
		}
	}
}

func (r *rig) seesNot(text string) {
	r.t.Helper()
	if strings.Contains(r.view(), text) {
		r.t.Fatalf("%q is seen:\n%s", text, r.view())
	}
}

func (r *rig) reads(texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.text(), text) {
			r.t.Fatalf("%q was not printed:\n%s", text, r.text())
		}
	}
}

// scenario is a test case that checks what is seen.
type scenario struct {
	name string
	do   func(r *rig)
}

func play(t *testing.T, all []scenario) {
	t.Helper()
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) { s.do(newRig(t, nil)) })
	}
}
