package webtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// ShotsVar names the directory in which screenshots are kept.
const ShotsVar = "SKANDHA_SCREENSHOTS"

// helpers are there for the expressions of tests. What a hostile text calls is noted in ran:
// the page itself calls none of it.
const helpers = `
	window.all = (css) => [...document.querySelectorAll(css)];
	window.one = (css) => document.querySelector(css);
	window.text = (css) => one(css)?.innerText ?? '';
	window.seen = (css) => all(css).some((e) => e.checkVisibility({visibilityProperty: true}));
	window.noted = {};
	window.note = (name, is) => {
		const look = () => { try { noted[name] ||= Boolean(is()); } catch { /* what it asks about is not there */ } };
		new MutationObserver(look).observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
		look();
	};
	window.ran = [];
	for (const name of ['alert', 'confirm', 'prompt', 'print', 'open']) window[name] = (...args) => { ran.push(name + '(' + args + ')'); };`

// Page is a browser tab with its own profile; it is not signed in at first.
type Page struct {
	t        testing.TB
	rig      *Rig
	ctx      context.Context //nolint:containedctx // chromedp keeps the browser's tab in it
	shots    string
	mu       sync.Mutex
	expected []*regexp.Regexp
	problems []string
}

// browserPath finds Chromium.
func browserPath(t testing.TB) string {
	t.Helper()
	for _, name := range []string{
		"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless_shell",
	} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	if os.Getenv("SKANDHA_REQUIRE") == "all" {
		t.Fatal("Chromium is not installed (Debian: apt-get install chromium)")
	}
	t.Skip("SKIPPED: no test of the page runs, because Chromium is not installed (Debian: apt-get install chromium)")
	return ""
}

// Page opens a browser at a desktop's size. It shows nothing yet.
func (r *Rig) Page(t testing.TB) *Page {
	t.Helper()
	return r.page(t)
}

// Senses are the files that the browser takes for what its microphone hears (WAV), once, and its camera
// sees (Motion JPEG), again and again. Without any, it has neither.
type Senses struct{ Hears, Sees string }

// WithSenses opens a browser in a session of the agent main, and allows it its camera and microphone.
func (r *Rig) WithSenses(t testing.TB, s Senses, session string) *Page {
	t.Helper()
	flags := []chromedp.ExecAllocatorOption{
		chromedp.Flag("use-fake-ui-for-media-stream", true), chromedp.Flag("use-fake-device-for-media-stream", true),
	}
	if s.Hears != "" {
		flags = append(flags, chromedp.Flag("use-file-for-fake-audio-capture", s.Hears+"%noloop"))
	}
	if s.Sees != "" {
		flags = append(flags, chromedp.Flag("use-file-for-fake-video-capture", s.Sees))
	}
	p := r.page(t, flags...)
	p.enter(r.Link(), session)
	return p
}

func (r *Rig) page(t testing.TB, flags ...chromedp.ExecAllocatorOption) *Page {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browserPath(t)), chromedp.WindowSize(1360, 860),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("disable-gpu", true), chromedp.Flag("lang", "en-GB"),
		chromedp.Flag("host-resolver-rules", "MAP *.example "+r.canary.addr()), chromedp.Env("LANG=en_GB.UTF-8"),
		chromedp.WSURLReadTimeout(patience))
	opts = append(opts, flags...)
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // Chromium refuses to build its own as root
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("closing the browser: %v", err)
		}
		cancel()
	})
	p := &Page{t: t, rig: r, ctx: ctx, shots: os.Getenv(ShotsVar)}
	if p.shots == "" {
		p.shots = t.TempDir()
	}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("starting the browser: %v", err)
	}
	p.watch()
	p.Do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument,
			page.AddScriptToEvaluateOnNewDocumentParams{Source: helpers})
		return err
	}))
	p.Size(1360, 860)
	t.Cleanup(p.report)
	return p
}

// SignedIn opens a browser in a session of the agent main.
func (r *Rig) SignedIn(t testing.TB, session string) *Page {
	t.Helper()
	p := r.Page(t)
	p.enter(r.Link(), session)
	return p
}

// enter opens a link in a session of the agent main.
func (p *Page) enter(link, session string) {
	p.t.Helper()
	p.Open(link)
	p.Wait(`one("#input")`)
	p.Session(session)
}

// WithToken opens a browser in a session of the agent main, signed in with the token.
func (r *Rig) WithToken(t testing.TB, token, session string) *Page {
	t.Helper()
	p := r.Page(t)
	p.Open("/")
	p.Type("#token", token)
	p.Press("Enter")
	p.Wait(`one("#input")`)
	p.Session(session)
	return p
}

// watch collects what the page writes to the console that it should not.
func (p *Page) watch() {
	messages := chromedp.Console(p.ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return // the browser was closed
			}
			switch m.Type {
			case chromedp.ConsoleError, chromedp.ConsoleException, "assert":
				p.mu.Lock()
				p.problems = append(p.problems, strings.TrimSpace(m.String()+" "+m.URL))
				p.mu.Unlock()
			}
		}
	}()
	p.Expect(`401 .*/v1/auth/me$`) // so a visitor is found out who is not signed in
}

// Expect names, as a regular expression, what the page may write to the console.
func (p *Page) Expect(expr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = append(p.expected, regexp.MustCompile(expr))
}

// Problems are what the page wrote to the console so far and was not expected.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, m := range p.problems {
		known := false
		for _, e := range p.expected {
			known = known || e.MatchString(m)
		}
		if !known {
			out = append(out, m)
		}
	}
	return out
}

func (p *Page) report() {
	for _, m := range p.Problems() {
		p.t.Errorf("the page wrote to its console: %s", m)
	}
	if ran, err := Eval[[]string](p, `window.ran ?? []`); err == nil && len(ran) > 0 { // else the browser is gone
		p.t.Errorf("on the page ran %q", ran)
	}
	if p.t.Failed() {
		if s, err := Eval[string](p, `document.body.innerText`); err == nil {
			p.t.Logf("the page showed:\n%s", s)
		}
	}
}

// Do carries out actions of chromedp.
func (p *Page) Do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// Eval is the value of an expression in the page, or of the promise that it is.
func Eval[T any](p *Page, expr string) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expr, chromedp.EvalAwaitPromise))
}

// Get is the value of an expression in the page; it fails the test if there is none.
func Get[T any](p *Page, expr string) T {
	p.t.Helper()
	v, err := Eval[T](p, expr)
	if err != nil {
		p.t.Fatalf("%s: %v", expr, err)
	}
	return v
}

// Wait waits until the expression is true in the page.
func (p *Page) Wait(expr string) {
	p.t.Helper()
	var last error
	p.until(expr, func() bool {
		// A page that is being loaded has no helpers yet, which is no reason to give up.
		v, err := Eval[bool](p, `Boolean(`+expr+`)`)
		last = err
		return err == nil && v
	}, func() string { return fmt.Sprint(last) })
}

// until polls until ok, or fails the test with why not.
func (p *Page) until(what string, ok func() bool, why func() string) {
	p.t.Helper()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if ok() {
			return
		}
	}
	shown, _ := Eval[string](p, `document.body.innerText`)
	p.t.Fatalf("waited %s in vain for %s (%s); the page shows:\n%s", patience, what, why(), shown)
}

// Note looks from now on, at every change of the page, whether the expression is true:
// what passes is missed by who looks now and then. [Page.Noted] waits for it.
func (p *Page) Note(name, expr string) {
	p.t.Helper()
	Get[bool](p, `(note(`+quote(name)+`, () => `+expr+`), true)`)
}

// Noted waits until the expression of [Page.Note] has been true.
func (p *Page) Noted(name string) {
	p.t.Helper()
	p.Wait(`noted[` + quote(name) + `]`)
}

// Open goes to an address; one that begins with "/" is the bridge's.
func (p *Page) Open(address string) {
	p.t.Helper()
	if strings.HasPrefix(address, "/") {
		address = p.rig.URL + address
	}
	p.Do(chromedp.Navigate(address))
}

// Session shows a session of the agent main, and waits until it is attached.
func (p *Page) Session(name string) {
	p.t.Helper()
	p.Do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Evaluate[any](`location.hash = "#/main/`+name+`"`)(ctx, t)
		return err
	}))
	p.Wait(`document.querySelector('.session[aria-current]')?.getAttribute('href') === '#/main/` + name + `'`)
	p.Wait(`one(".state").dataset.state === "waiting_for_input" || one(".turn") || one(".welcome")`)
}

// Say types a text into the input field and sends it.
func (p *Page) Say(text string) {
	p.t.Helper()
	p.Type("#input", text)
	p.Press("Enter")
}

// Type puts a text where the first element of css is, as a paste does.
func (p *Page) Type(css, text string) {
	p.t.Helper()
	p.Focus(css)
	p.Do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, input.InsertText, input.InsertTextParams{Text: text})
		return err
	}))
}

// Focus puts the keyboard's focus on the first element of css.
func (p *Page) Focus(css string) {
	p.t.Helper()
	p.Wait(`(one(` + quote(css) + `)?.focus(), document.activeElement === one(` + quote(css) + `))`)
}

// keys are those that tests press, by the names of KeyboardEvent.key.
var keys = map[string]struct {
	code    string
	virtual int64
	text    string
}{
	"Enter": {"Enter", 13, "\r"}, "Escape": {"Escape", 27, ""}, "Tab": {"Tab", 9, ""}, "ArrowUp": {"ArrowUp", 38, ""},
	"ArrowDown": {"ArrowDown", 40, ""},
	"ArrowLeft": {"ArrowLeft", 37, ""}, "ArrowRight": {"ArrowRight", 39, ""}, " ": {"Space", 32, " "},
	"?": {"Slash", 191, "?"}, "/": {"Slash", 191, "/"},
	"a": {"KeyA", 65, "a"}, "k": {"KeyK", 75, "k"}, "n": {"KeyN", 78, "n"}, "0": {"Digit0", 48, "0"},
	"1": {"Digit1", 49, "1"}, "2": {"Digit2", 50, "2"}, "3": {"Digit3", 51, "3"}, "4": {"Digit4", 52, "4"},
	"5": {"Digit5", 53, "5"},
	"6": {"Digit6", 54, "6"},
	"7": {"Digit7", 55, "7"},
}

// Press presses a key, such as "Enter", with modifiers before it: "Alt+a", "Shift+Tab".
func (p *Page) Press(chord string) {
	p.t.Helper()
	parts := strings.Split(chord, "+")
	name := parts[len(parts)-1]
	k, ok := keys[name]
	if !ok {
		p.t.Fatalf("Press: there is no key %q; add it to keys", name)
	}
	var modifiers int64
	for _, m := range parts[:len(parts)-1] {
		modifiers |= map[string]int64{"Alt": 1, "Ctrl": 2, "Meta": 4, "Shift": 8}[m]
	}
	text := k.text
	if modifiers&7 != 0 {
		text = ""
	}
	p.Do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		down := input.DispatchKeyEventParams{
			Type: input.DispatchKeyEventTypeKeyDown, Key: name, Code: k.code, WindowsVirtualKeyCode: k.virtual,
			Modifiers: modifiers, Text: text,
		}
		if text == "" {
			down.Type = input.DispatchKeyEventTypeRawKeyDown
		}
		if _, err := chromedp.Call(ctx, input.DispatchKeyEvent, down); err != nil {
			return err
		}
		up := input.DispatchKeyEventParams{
			Type: input.DispatchKeyEventTypeKeyUp, Key: name, Code: k.code, WindowsVirtualKeyCode: k.virtual,
			Modifiers: modifiers,
		}
		_, err := chromedp.Call(ctx, input.DispatchKeyEvent, up)
		return err
	}))
}

// Size sets the size of the window, in CSS pixels.
func (p *Page) Size(width, height int64) {
	p.t.Helper()
	p.Do(chromedp.EmulateViewport(width, height))
}

// Prefer sets what the system prefers: "dark" or "light" colours, and less motion or not.
func (p *Page) Prefer(colours string, lessMotion bool) {
	p.t.Helper()
	motion := "no-preference"
	if lessMotion {
		motion = "reduce"
	}
	p.Do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: colours}, {Name: "prefers-reduced-motion", Value: motion},
			}})
		return err
	}))
}

// Shot keeps a screenshot of what is seen now.
func (p *Page) Shot(name string) {
	p.t.Helper()
	// What slides or fades is seen where it ends.
	p.Wait(`document.getAnimations().every((a) => !(a instanceof CSSTransition) || a.playState === "finished")`)
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatalf("taking the screenshot %s: %v", name, err)
	}
	if err := os.MkdirAll(p.shots, 0o700); err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(p.shots, notInNames.ReplaceAllString(name, "-")+".png")
	if err := os.WriteFile(file, png, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// quote writes a text as JavaScript.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("quoting %q: %v", s, err)) // texts can be encoded
	}
	return string(b)
}
