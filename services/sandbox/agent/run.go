package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"skandha.dev/services/internal/nesting"
)

const (
	defaultTimeout = 30 * time.Second
	defaultOutput  = 64 << 10
	maxOutput      = 8 << 20
	maxResult      = 64 << 10
	maxFiles       = 64
)

// Run executes r. It waits until the earlier runs have ended; if ctx ends before its turn,
// Run returns ctx's error and nothing has run. If ctx ends later, the run is stopped and
// its Exit reports that. Errors: [*Error] when it could not be started, [ErrBroken].
func (c *Conn) Run(ctx context.Context, r Run) (Exit, error) {
	w, err := runWork(&r)
	if err != nil {
		return Exit{}, err
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	case <-c.done:
		return Exit{}, c.Err()
	}
	o := outcome{live: [2]live{{to: r.Output, stream: Stdout}, {to: r.Output, stream: Stderr}}}
	w.frame = o.take
	text, err := c.exchange(ctx, w)
	if err != nil {
		return Exit{}, err
	}
	var a struct {
		Exit *ending `json:"exit"`
	}
	if err := c.answer(text, &a); err != nil {
		return Exit{}, err
	}
	if a.Exit == nil {
		return Exit{}, c.fail(fmt.Errorf("the agent's answer to a run has no exit"))
	}
	exit, err := o.exit(a.Exit)
	if err != nil {
		return Exit{}, c.fail(err)
	}
	return exit, nil
}

// runWork checks r, fills in its defaults, and returns the request.
func runWork(r *Run) (*work, error) {
	invalid := func(format string, args ...any) (*work, error) {
		return nil, &Error{Code: "invalid", Message: fmt.Sprintf(format, args...)}
	}
	fields := map[string]any{"kind": r.Kind, "live": r.Output != nil, "dir": r.Dir, "env": maps.Clone(r.Env)}
	switch r.Kind {
	case Python, Shell:
		fields["code"] = r.Code
	case Argv:
		if len(r.Argv) == 0 || r.Argv[0] == "" {
			return invalid("argv is empty, want the program and its arguments")
		}
		fields["argv"] = r.Argv
	default:
		return invalid("kind is %q, want python, shell or argv", r.Kind)
	}
	for k, v := range r.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return invalid("env.%s: a name must not be empty or contain '=', and names and values must not contain NUL", k)
		}
	}
	if r.Timeout <= 0 {
		r.Timeout = defaultTimeout
	}
	if r.Grace <= 0 {
		r.Grace = defaultGrace
	}
	if r.MaxOutput <= 0 {
		r.MaxOutput = defaultOutput
	}
	r.MaxOutput = min(r.MaxOutput, maxOutput)
	fields["max_output"] = r.MaxOutput
	w := &work{op: "run", fields: fields, timeout: r.Timeout, grace: r.Grace}
	if len(r.Stdin) <= maxTail {
		w.tail = r.Stdin
	} else {
		w.in = bytes.NewReader(r.Stdin)
	}
	w.allowed = allowed{kept: [2]int{r.MaxOutput, r.MaxOutput}, said: true}
	if r.Output != nil {
		w.allowed.live = w.allowed.kept
	}
	return w, nil
}

// outcome collects the frames of a run.
type outcome struct {
	kept [2][]byte
	said []byte
	live [2]live
}

func (o *outcome) take(f frame) {
	switch f.kind {
	case fromKept:
		o.kept[f.payload[0]] = append(o.kept[f.payload[0]], f.payload[1:]...)
	case fromLive:
		o.live[f.payload[0]].add(f.payload[1:])
	case fromSaid:
		o.said = f.payload
	}
}

// live forwards pieces of a stream that consist of whole characters.
type live struct {
	to     func(Stream, []byte)
	stream Stream
	given  int // bytes, including those in held
	held   []byte
}

func (l *live) add(piece []byte) {
	l.given += len(piece)
	b := slices.Concat(l.held, piece)
	l.held = nil
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-n:]) {
				b, l.held = b[:len(b)-n], bytes.Clone(b[len(b)-n:])
			}
			break
		}
	}
	if len(b) > 0 {
		l.to(l.stream, b)
	}
}

// end forwards the kept bytes that were not forwarded yet, up to the first gap.
func (l *live) end(kept []byte) {
	if l.to == nil {
		return
	}
	if l.given < len(kept) {
		l.add(kept[l.given:])
	}
	if len(l.held) > 0 {
		l.to(l.stream, l.held)
	}
}

// ending is the agent's report of how a run ended.
type ending struct {
	Code     int      `json:"code"`
	Signal   int      `json:"signal"`
	TimedOut bool     `json:"timed_out"`
	Stopped  bool     `json:"stopped"`
	Duration int64    `json:"duration_us"`
	Strays   int      `json:"strays"`
	Out      [3]int64 `json:"out"` // bytes printed, bytes of the kept head, and of the tail
	Err      [3]int64 `json:"err"`
}

// maxPID is more than the number of processes of any kernel.
const maxPID = 1 << 22

func (o *outcome) exit(e *ending) (Exit, error) {
	if e.Strays > maxPID {
		return Exit{}, fmt.Errorf("invalid process count of the agent: %d", e.Strays)
	}
	x := Exit{
		Code: e.Code, TimedOut: e.TimedOut, Stopped: e.Stopped, Strays: max(0, e.Strays),
		Duration: time.Duration(min(max(0, e.Duration), 1<<40)) * time.Microsecond,
	}
	if e.Signal > 0 {
		x.Signal = signalName(e.Signal)
	}
	for i, size := range [2][3]int64{e.Out, e.Err} {
		text, err := keptText(o.kept[i], size)
		if err != nil {
			return Exit{}, err
		}
		head := o.kept[i]
		if text.Cut {
			head = head[:size[1]]
		}
		o.live[i].end(head)
		if i == 0 {
			x.Stdout = text
		} else {
			x.Stderr = text
		}
	}
	o.result(&x)
	return x, nil
}

// maxPrinted is more than a run can print.
const maxPrinted = 1 << 50

// keptText returns kept output as text: its head, how much was left out, its tail.
func keptText(kept []byte, size [3]int64) (Text, error) {
	total, head, tail := size[0], size[1], size[2]
	if head < 0 || tail < 0 || total > maxPrinted || head+tail != int64(len(kept)) || total < head+tail {
		return Text{}, fmt.Errorf("invalid output count of the agent: %d bytes, %d and %d kept, %d sent", total, head, tail,
			len(kept))
	}
	t := Text{Bytes: total, Cut: total > head+tail}
	if !t.Cut {
		t.Text = strings.ToValidUTF8(string(kept), "\uFFFD")
		return t, nil
	}
	first, last := kept[:head], kept[head:]
	for n := 0; n < utf8.UTFMax-1 && len(last) > 0 && !utf8.RuneStart(last[0]); n++ {
		last = last[1:]
	}
	if r, n := utf8.DecodeLastRune(first); r == utf8.RuneError && n == 1 {
		for k := 1; k < utf8.UTFMax && k <= len(first); k++ {
			if end := first[len(first)-k:]; utf8.RuneStart(end[0]) && !utf8.FullRune(end) {
				first = first[:len(first)-k]
				break
			}
		}
	}
	t.Text = strings.ToValidUTF8(string(first), "\uFFFD") +
		fmt.Sprintf("\n[… %d bytes left out …]\n", total-int64(len(first)+len(last))) +
		strings.ToValidUTF8(string(last), "\uFFFD")
	return t, nil
}

// result reads what the run's child sent about the result. The code itself could have sent
// it, so invalid parts are dropped and cause no error.
func (o *outcome) result(x *Exit) {
	var s struct {
		Result json.RawMessage `json:"result"`
		Repr   string          `json:"repr"`
		Files  []wireFile      `json:"files"`
		More   int             `json:"more"`
		Unseen map[string]int  `json:"unseen"`
	}
	if o.said == nil || json.Unmarshal(o.said, &s) != nil {
		return
	}
	x.Repr = cut(s.Repr, maxResult)
	if len(s.Result) > 0 && string(s.Result) != "null" && len(s.Result) <= maxResult {
		text := bytes.ToValidUTF8(s.Result, []byte("\uFFFD"))
		if nesting.Depth(text) <= maxDepth && json.Valid(text) {
			x.Result = text
		} else {
			x.Repr = string(text)
		}
	}
	x.Files = filesOf(s.Files[:min(len(s.Files), maxFiles)])
	x.MoreFiles = min(max(s.More, 0), maxWalk)
	for _, u := range unseen {
		if n := min(s.Unseen[u.why], maxWalk); n > 0 {
			x.UnseenFiles = append(x.UnseenFiles, strings.ReplaceAll(u.text, "N", strconv.Itoa(n)))
		}
	}
}

// maxWalk bounds the entries below out that the agent examines.
const maxWalk = 32768

// unseen lists the reasons why files below out are not listed; N is the number of cases.
var unseen = []struct{ why, text string }{
	{"out", "out is not a directory, so no file in it is kept; replace it with a directory"},
	{"many", fmt.Sprintf("out has more than %d entries; the rest was not examined", maxWalk)},
	{"deep", "N directories more than 16 levels below out were not examined"},
	{"closed", "N directories below out were not readable"},
}

// cut shortens s to at most n bytes, on a character boundary.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

var signalNames = strings.Fields(
	"SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE SIGALRM SIGTERM " +
		"SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF " +
		"SIGWINCH SIGIO SIGPWR SIGSYS")

func signalName(n int) string {
	if n >= 1 && n <= len(signalNames) {
		return signalNames[n-1]
	}
	return fmt.Sprintf("signal %d", n)
}
