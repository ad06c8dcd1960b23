package terminal

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/services/internal/proposal"
	"skandha.dev/services/internal/safetext"
)

// prompt is a confirmation request that waits for an answer.
type prompt struct {
	q        event.ToolCallRequest
	since    time.Time // when it came to the front
	mode     promptMode
	keys     string   // typed between choosing and granting or deciding
	sending  bool     // an answer from this terminal is being sent
	yes      bool     // that answer
	seen     bool     // all of it was on the screen at once, or printed
	approved []string // the people who have approved, if more must
}

// promptMode decides what the next key means.
type promptMode int

const (
	choosing  promptMode = iota // y, n, a, r or e
	deciding                    // Enter, after y, n or a grant: a word's first letter must not decide
	granting                    // the number of a grant
	reasoning                   // the reason for a refusal is being typed
)

// settle is how long a prompt is shown before it accepts an approval, however it came to
// the front.
const settle = 400 * time.Millisecond

// grace is the time after a prompt appears, and after the last key for the editor, in which keys
// go to the editor: typing must not decide by accident. Esc ends it.
const grace = 1500 * time.Millisecond

// describeWait is the time limit for loading a tool's description.
const describeWait = 2 * time.Second

// ask adds a prompt for a request, or approves it if Yes is set.
func (m *model) ask(q event.ToolCallRequest) {
	if m.cfg.Yes {
		m.note(yellow, fmt.Sprintf("Approved by --yes: %s %s", safetext.Visible(q.ToolName), brief(q.Args, 200)))
		m.reply(&prompt{q: q}, event.Confirmation{Approved: true, Reason: "--yes"})
		return
	}
	m.prompts = append(m.prompts, &prompt{q: q, since: m.now})
	if len(m.prompts) == 1 {
		m.graceEnds, m.typing = m.now.Add(grace), m.editor.value() != ""
	}
}

// front returns the prompt that is shown, nil if there is none.
func (m *model) front() *prompt {
	if len(m.prompts) == 0 {
		return nil
	}
	return m.prompts[0]
}

// promptActive reports whether keys go to the prompt.
func (m *model) promptActive() bool { return len(m.prompts) > 0 && !m.typing }

// inGrace reports whether a key goes to the editor instead of the prompt.
func (m *model) inGrace(b *prompt) bool {
	return b.mode == choosing && !b.sending && m.now.Before(m.graceEnds)
}

func (m *model) settled(b *prompt) bool { return m.now.Sub(b.since) >= settle && !m.inGrace(b) }

// promptKey handles a key for the prompt.
func (m *model) promptKey(k tea.KeyPressMsg, key string) {
	b := m.front()
	switch {
	case b.mode == granting:
		m.grant(b, k, key)
	case b.mode == deciding:
		m.decide(b, k, key)
	case key == "esc":
		m.typing = true
	case b.sending:
	case key == "n":
		b.mode, b.keys = deciding, key
	case key == "r":
		b.mode, m.typing = reasoning, true
		m.editor.ask("why not › ")
	case key == "e":
		m.describe(b)
	case key == "y" && m.settled(b) && b.seen: // only what was shown in full can be approved
		b.mode, b.keys = deciding, key
	case key == "a" && m.settled(b) && b.seen && len(b.q.Always) > 0:
		b.mode, b.keys = granting, key
	case key != "y" && (key != "a" || len(b.q.Always) == 0):
		m.word(b, k, key)
	}
}

// decide handles a key after a decision was chosen: Enter confirms it.
func (m *model) decide(b *prompt, k tea.KeyPressMsg, key string) {
	if key != "enter" {
		m.word(b, k, key)
		return
	}
	m.reply(b, event.Confirmation{Approved: b.keys != "n", Always: b.always()})
}

// grant handles a key while a grant is chosen by its number.
func (m *model) grant(b *prompt, k tea.KeyPressMsg, key string) {
	switch digit := len(key) == 1 && key[0] >= '0' && key[0] <= '9'; {
	case !digit:
		m.word(b, k, key)
	case key[0] > '0' && int(key[0]-'1') < len(b.q.Always):
		b.mode, b.keys = deciding, b.keys+key
	}
}

// word moves the letters typed so far, and the key, to the editor: they begin a word. A
// key that is not text returns to the choice.
func (m *model) word(b *prompt, k tea.KeyPressMsg, key string) {
	keys := b.unchoose()
	if k.Text == "" {
		return
	}
	m.editor.insert(keys)
	m.typing = true
	m.editorKey(k, key)
}

// unchoose cancels a choice in progress and returns its letters.
func (b *prompt) unchoose() (keys string) {
	if b.mode == granting || b.mode == deciding {
		keys, b.mode, b.keys = b.keys, choosing, ""
	}
	return keys
}

// always returns the chosen grant, or nil.
func (b *prompt) always() *event.Grant {
	n, ok := strings.CutPrefix(b.keys, "a")
	if !ok || n == "" {
		return nil
	}
	g := b.q.Always[n[0]-'1']
	return &g
}

// decision describes what Enter does.
func (b *prompt) decision() string {
	switch g := b.always(); {
	case g != nil:
		return "Enter approves this call, and from now on in this session " + proposal.Grant(*g)
	case b.keys == "n":
		return "Enter refuses"
	}
	return "Enter approves"
}

// refuse refuses the request with the typed reason.
func (m *model) refuse(reason string) {
	b := m.front()
	m.editor.plain()
	m.typing = false
	if b != nil {
		m.reply(b, event.Confirmation{Reason: strings.TrimSpace(reason)})
	}
}

// reply sends an answer for exactly what was shown.
func (m *model) reply(b *prompt, a event.Confirmation) {
	b.sending, b.yes, b.mode = true, a.Approved, choosing
	a.ConfirmationID, a.Hash, a.Source = b.q.ConfirmationID, b.q.Hash, Source
	m.send(func(ctx context.Context) tea.Msg { return answered{a.ConfirmationID, m.cfg.Client.Answer(ctx, a)} })
}

func (m *model) answered(a answered) {
	if a.err == nil {
		return
	}
	m.note(red, "Your answer could not be sent: "+safetext.Line(a.err.Error()))
	for _, b := range m.prompts {
		if b.q.ConfirmationID == a.id {
			b.sending, b.since = false, m.now
		}
	}
}

// approved notes who has approved a call that more people must approve. Its prompt stays.
func (m *model) approved(p event.ActApproved) {
	what := ""
	for _, b := range m.prompts {
		if b.q.ConfirmationID == p.Call {
			what = safetext.Visible(b.q.ToolName) + " "
			b.approved, b.sending = append(b.approved, p.Person), false
		}
	}
	m.note(yellow, what+FirstDecision(p))
}

// FirstDecision describes an approval that is not enough.
func FirstDecision(p event.ActApproved) string {
	who := safetext.Line(p.Person)
	if p.For != "" {
		who += " for " + safetext.Line(p.For)
	}
	if p.Left == 1 {
		return "approved by " + who + "; one more person must approve it"
	}
	return fmt.Sprintf("approved by %s; %d more people must approve it", who, p.Left)
}

// NeedsText says who must approve a call, and who has; it is empty if any one person may.
func NeedsText(q event.ToolCallRequest, approved []string) string {
	if q.Approval == nil {
		return ""
	}
	text := safetext.Line(q.Approval.Needs())
	if len(approved) > 0 {
		text += "; approved by " + safetext.Line(strings.Join(approved, ", "))
	}
	return text
}

// confirmed closes the prompt of a decided request, and prints the decision and who made
// it.
func (m *model) confirmed(p event.ActConfirmed) {
	i := slices.IndexFunc(m.prompts, func(b *prompt) bool { return b.q.ConfirmationID == p.Call })
	what, ours := "", false
	if i >= 0 {
		b := m.prompts[i]
		what, ours = safetext.Visible(b.q.ToolName), b.sending && b.yes == (p.Outcome == event.Approved)
		m.prompts = slices.Delete(m.prompts, i, i+1)
		if i == 0 {
			m.next()
		}
	}
	who := ""
	if ours && p.By == m.cfg.Writer && p.Source == Source {
		who = "you"
	}
	s := green
	if p.Outcome != event.Approved {
		s = yellow
		m.refused[p.Call] = true // its result adds nothing
	}
	m.note(s, strings.TrimSpace(what+" "+Decision(p, who)))
}

// Decision describes how a confirmation request was decided, and by whom; an empty who
// means the event's writer.
func Decision(p event.ActConfirmed, who string) string {
	if who == "" {
		who = safetext.Line(cmp.Or(p.Person, string(p.By)))
		if p.For != "" {
			who += " for " + safetext.Line(p.For)
		}
		if p.Source != "" {
			who += " in " + safetext.Line(p.Source)
		}
	}
	var text string
	switch p.Outcome {
	case event.Denied:
		text = "refused by " + who
	case event.Expired:
		text = "expired: no answer in time, which counts as a refusal"
	default:
		text = "approved by " + who
		if len(p.Others) > 0 {
			text += ", after " + safetext.Line(strings.Join(p.Others, ", "))
		}
	}
	if p.Always != nil {
		text += ", and from now on in this session: " + proposal.Grant(*p.Always)
	}
	// Core repeats in the reason who refused.
	if why, _ := strings.CutPrefix(p.Reason, "refused by "+cmp.Or(p.Person, string(p.By))); p.Outcome != event.Expired &&
		strings.Trim(why, ": ") != "" {
		text += ": " + safetext.Line(strings.TrimLeft(why, ": "))
	}
	return text
}

// next shows the next prompt, if there is one.
func (m *model) next() {
	m.editor.plain()
	if b := m.front(); b != nil {
		b.since, m.graceEnds = m.now, m.now.Add(grace)
		m.typing = m.editor.value() != ""
		return
	}
	m.typing = false
}

// describe loads the tool's description, and then prints the whole request.
func (m *model) describe(b *prompt) {
	id, name := b.q.ConfirmationID, b.q.ToolName
	m.send(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, describeWait)
		defer cancel()
		text, err := m.cfg.Client.Describe(ctx, name)
		if err != nil {
			text = "could not load the tool's description: " + err.Error()
		}
		return described{id, text}
	})
}

// explain prints everything about a request above the live region, where the user can
// scroll.
func (m *model) explain(d described) {
	i := slices.IndexFunc(m.prompts, func(b *prompt) bool { return b.q.ConfirmationID == d.id })
	if i < 0 {
		return
	}
	q := m.prompts[i].q
	needs := NeedsText(q, m.prompts[i].approved)
	m.prompts[i].seen = true
	m.print(func(width int) []string {
		out := []string{"", bold.of("About this request")}
		out = append(out, wrap("tool: "+toolName(q.ToolName)+OwnerText(q), width, "  ", "    ")...)
		out = append(out, lines("description: "+d.text, dim, width, "  ")...)
		if w := q.SecurityWarning; w != nil {
			out = append(out, lines(fmt.Sprintf("why you are asked (%s): %s", w.Level, w.Message), yellow, width, "  ")...)
		}
		out = append(out, "  arguments, exactly as they will be used:")
		for _, row := range argRows(q.Args, width-4) {
			out = append(out, "    "+row)
		}
		if needs != "" {
			out = append(out, lines("who decides: "+needs+" ("+q.Approval.Rule+")", yellow, width, "  ")...)
		}
		for _, g := range q.Always {
			out = append(out, lines("“always” could approve "+proposal.Grant(g), dim, width, "  ")...)
		}
		out = append(out, lines("An approval counts once, only for these arguments (hash "+q.Hash+"), until "+
			q.ExpiresAt.Local().Format("15:04:05")+". No answer means no.", dim, width, "  ")...)
		return out
	})
}

// OwnerText names the plugin that runs a tool; it is empty for built-in tools.
func OwnerText(q event.ToolCallRequest) string {
	if q.Owner == "" {
		return ""
	}
	return " of the plugin " + safetext.Line(q.Owner)
}

// rows draws the prompt, in at most height rows.
func (b *prompt) rows(m *model, width, height int) []string {
	w := min(width, 100)
	inner := w - 4
	title := "approval"
	if n := len(m.prompts); n > 1 {
		title += fmt.Sprintf(", 1 of %d", n)
	}
	left := b.q.ExpiresAt.Sub(m.now)
	clock := seconds(left)
	if left <= 0 {
		clock = "expired"
	}
	body, foot := b.content(m, inner, height-2)
	rows := slices.Concat(body, foot)
	edge := yellow
	line := strings.Repeat("─", max(w-8-cells(title)-cells(clock), 1))
	out := []string{fit(edge.of("╭─ ")+bold.of(title)+edge.of(" "+line+" ")+clock+edge.of(" ─╮"), w)}
	for _, r := range rows {
		out = append(out, edge.of("│ ")+r+strings.Repeat(" ", max(inner-cells(r), 0))+edge.of(" │"))
	}
	return append(out, edge.of("╰"+strings.Repeat("─", w-2)+"╯"))
}

// content returns the prompt without its border. A prompt counts as seen once it has
// settled and has shown everything together with the choices.
func (b *prompt) content(m *model, width, height int) (body, foot []string) {
	was := b.seen
	b.seen = true
	foot = b.foot(m, width)
	body, whole := b.body(m, width, max(height-len(foot), 3))
	if was || whole && len(body)+len(foot) <= height && m.settled(b) {
		return body, foot
	}
	b.seen = false
	foot = b.foot(m, width)
	body, _ = b.body(m, width, max(height-len(foot), 3))
	return body, foot
}

// body returns the request in at most height rows. It says how many rows do not fit; e
// shows them all. Whole reports whether everything fits.
func (b *prompt) body(m *model, width, height int) (rows []string, whole bool) {
	name := wrap(toolName(b.q.ToolName)+OwnerText(b.q)+" wants to run", width, "", "")
	if a := b.q.Answer; a != nil {
		name = append(name, wrap(fmt.Sprintf("The plugin %s answers instead; the tool will not run: %s",
			safetext.Line(string(a.By)), safetext.Line(string(a.Data))), width, "", "  ")...)
	}
	var warn []string
	if w := b.q.SecurityWarning; w != nil {
		s := yellow
		if w.Level == hook.LevelCritical {
			s = red
		}
		for i, line := range strings.Split(w.Message, "\n") { // policy's message, then one of each plugin
			warn = append(warn, wrap(s.of([]string{"⚠ ", "  "}[min(i, 1)]+safetext.Line(line)), width, "", "  ")...)
		}
	}
	if needs := NeedsText(b.q, b.approved); needs != "" {
		warn = append(warn, wrap("• "+needs, width, "", "  ")...)
	}
	args := callRows(b.q.ToolName, b.q.Args, &m.files, width)
	over := len(name) + len(warn) + len(args) - height
	if over > 0 {
		name = name[:1]
		warn = warn[:min(len(warn), max(height-len(name)-min(len(args), 3), 1))]
		if space := max(height-len(name)-len(warn), 1); len(args) > space {
			args = append(args[:space-1:space-1],
				fit(yellow.of(fmt.Sprintf("… %d more lines; e shows them all", len(args)-space+1)), width))
		}
	}
	return slices.Concat(name, warn, args), over <= 0
}

// foot shows the available keys.
func (b *prompt) foot(m *model, width int) []string {
	key := func(k, what string) string { return bold.of(k) + nbsp + strings.ReplaceAll(what, " ", nbsp) }
	choices := func(keys ...string) []string {
		rows := wrap(strings.Join(keys, dim.of(" · ")), width, "", "")
		for i, r := range rows {
			rows[i] = strings.ReplaceAll(r, nbsp, " ")
		}
		return rows
	}
	switch {
	case b.sending:
		return wrap(dim.of("sending your answer…"), width, "", "")
	case b.mode == reasoning:
		return wrap(dim.of("Enter refuses with what you type · Esc goes back"), width, "", "")
	case b.mode == granting:
		rows := wrap("Approve, and from now on in this session:", width, "", "")
		for i, g := range b.q.Always {
			rows = append(rows, wrap(proposal.Grant(g), width, bold.of(fmt.Sprintf("%d ", i+1)), "  ")...)
		}
		return append(rows, dim.of("Esc goes back"))
	case m.typing:
		return wrap(dim.of("Esc: answer this · Enter: send what you type"), width, "", "")
	case b.mode == deciding:
		return wrap(bold.of(b.decision())+dim.of(" · Esc goes back"), width, "", "")
	case m.inGrace(b):
		return wrap(dim.of("what you type now goes to the input line…"), width, "", "")
	case !m.settled(b):
		return []string{dim.of("…")}
	}
	if !b.seen {
		return choices(key("e", "show all of it, to approve"), key("n", "refuse"), key("r", "say why not"))
	}
	parts := []string{key("y", "approve"), key("n", "refuse")}
	if len(b.q.Always) > 0 {
		parts = append(parts, key("a", "always…"))
	}
	return choices(append(parts, key("r", "say why not"), key("e", "explain"))...)
}

// nbsp keeps a key and its description on one row.
const nbsp = "\u00a0"
