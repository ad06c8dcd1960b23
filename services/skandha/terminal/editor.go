package terminal

import (
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"skandha.dev/services/internal/safetext"
)

// editor is the input field: a few lines, with history and completion.
type editor struct {
	area     textarea.Model
	past     *history
	commands []Command
	choice   int  // index of the chosen completion; -1: none
	closed   bool // the user has closed the completions
	asking   bool // used for something other than an input
}

const inputPrompt = "› "

// editorRows is the maximum height of the editor.
const editorRows = 8

func newEditor(commands []Command, file string) editor {
	a := textarea.New()
	a.ShowLineNumbers = false
	a.CharLimit = 0
	a.DynamicHeight, a.MinHeight, a.MaxHeight, a.MaxContentHeight = true, 1, editorRows, 9000
	a.SetVirtualCursor(false)
	plain := textarea.StyleState{Prompt: lipgloss.NewStyle().Bold(true)}
	a.SetStyles(textarea.Styles{Focused: plain, Blurred: plain, Cursor: textarea.CursorStyle{Shape: tea.CursorBlock}})
	a.KeyMap.InsertNewline = key.NewBinding(key.WithKeys("alt+enter", "ctrl+j", "shift+enter"))
	a.KeyMap.Paste.SetEnabled(false)         // the terminal pastes
	a.KeyMap.CopySelection.SetEnabled(false) // and copies
	e := editor{area: a, past: openHistory(file), commands: commands, choice: -1}
	e.setPrompt(inputPrompt)
	return e
}

// setPrompt shows the prompt, only on the first line.
func (e *editor) setPrompt(p string) {
	n := cells(p)
	e.area.SetPromptFunc(n, func(i textarea.PromptInfo) string {
		if i.LineNumber == 0 {
			return p
		}
		return strings.Repeat(" ", n)
	})
}

func (e *editor) focus() tea.Cmd { return e.area.Focus() }
func (e *editor) value() string  { return e.area.Value() }

func (e *editor) update(msg tea.Msg) tea.Cmd {
	before := e.area.Value()
	var cmd tea.Cmd
	e.area, cmd = e.area.Update(msg)
	if e.area.Value() != before {
		e.choice, e.closed = -1, false
	}
	return cmd
}

func (e *editor) set(text string) {
	e.area.SetValue(text)
	e.area.MoveToEnd()
	e.choice, e.closed = -1, false
}

// insert adds text at the cursor.
func (e *editor) insert(text string) {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	e.update(tea.PasteMsg{Content: safetext.Clean(text)})
}

func (e *editor) resize(width, height int) {
	e.area.MaxHeight = max(min(editorRows, height/3), 1)
	e.area.SetWidth(max(width-1, 12))
}

// ask uses the editor to ask for something else than an input, until plain.
func (e *editor) ask(p string) {
	e.asking = true
	e.past.hold(e.area.Value())
	e.set("")
	e.setPrompt(p)
}

func (e *editor) plain() {
	if e.asking {
		e.asking = false
		e.set(e.past.release())
		e.setPrompt(inputPrompt)
	}
}

// first and last report whether the cursor is in the first or last row.
func (e *editor) first() bool { return e.area.Line() == 0 && e.area.LineInfo().RowOffset == 0 }

func (e *editor) last() bool {
	i := e.area.LineInfo()
	return e.area.Line() == e.area.LineCount()-1 && i.RowOffset >= i.Height-1
}

// completions returns the commands that the typed text may become.
func (e *editor) completions() []Command {
	text := e.area.Value()
	if e.closed || e.asking || !strings.HasPrefix(text, "/") || strings.ContainsAny(text, " \n") {
		return nil
	}
	var out []Command
	for _, c := range e.commands {
		if strings.HasPrefix(c.Name, text[1:]) {
			out = append(out, c)
		}
	}
	if len(out) == 1 && out[0].Name == text[1:] && out[0].Args == "" {
		return nil // already complete
	}
	return out
}

// complete inserts the common prefix, and then goes through the list.
func (e *editor) complete(by int) {
	all := e.completions()
	if len(all) == 0 {
		return
	}
	if len(all) == 1 {
		e.accept(all[0])
		return
	}
	if common := commonPrefix(all); e.choice < 0 && by > 0 && len(common) > len(e.area.Value())-1 {
		e.set("/" + common)
		return
	}
	e.choose(by)
}

// choose goes through the list.
func (e *editor) choose(by int) {
	n := len(e.completions())
	switch {
	case n == 0:
	case e.choice < 0 && by < 0:
		e.choice = n - 1
	default:
		e.choice = (e.choice + by + n) % n
	}
}

// recall shows an entry of the history, without completions, so that Up and Down continue
// in the history.
func (e *editor) recall(text string) {
	e.set(text)
	e.closed = true
}

// accept inserts a command.
func (e *editor) accept(c Command) {
	text := "/" + c.Name
	if c.Args != "" {
		text += " "
	}
	e.set(text)
}

// chosen returns the command that is selected in the list.
func (e *editor) chosen() (Command, bool) {
	all := e.completions()
	if e.choice < 0 || e.choice >= len(all) {
		return Command{}, false
	}
	return all[e.choice], true
}

func commonPrefix(all []Command) string {
	common := all[0].Name
	for _, c := range all[1:] {
		for !strings.HasPrefix(c.Name, common) {
			common = common[:len(common)-1]
		}
	}
	return common
}

// completionRows is how many completions are shown at once.
const completionRows = 6

// list draws the completions.
func (e *editor) list(width int) []string {
	all := e.completions()
	from := max(min(e.choice-completionRows/2, len(all)-completionRows), 0)
	var out []string
	for i := from; i < min(from+completionRows, len(all)); i++ {
		c := all[i]
		name := strings.TrimSpace("/" + c.Name + " " + c.Args)
		pad := strings.Repeat(" ", max(18-cells(name), 1))
		row := fit("  "+cyan.of(name)+pad+dim.of(c.Help), width)
		if i == e.choice {
			row = fit(reverse.of("  "+name+pad+c.Help), width)
		}
		out = append(out, row)
	}
	if more := len(all) - from - completionRows; more > 0 {
		out = append(out, dim.of("  …"))
	}
	return out
}
