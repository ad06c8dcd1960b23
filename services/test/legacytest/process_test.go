package legacytest

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"skandha.dev/pkg/plugin"
	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/geminitest"
	"skandha.dev/services/test/natstest"
)

// halfway begins to answer and never ends.
func halfway(w http.ResponseWriter, r *http.Request) {
	geminitest.NewStream(w).Text("half an answer")
	<-r.Context().Done()
}

// A request whose plugin was killed in the middle of the answer goes to the next process of
// the plugin.
func TestAKilledPluginsRequestIsAskedAgain(t *testing.T) {
	r := start(t)
	r.api.Next(halfway)
	ended := make(chan foreigntest.End, 1)
	go func() { ended <- r.Say("s", "hello") }()
	natstest.Eventually(t, "the API is asked", func() bool { return len(r.api.Seen()) == 1 })
	r.plugin.Kill()
	r.spawn(t)
	if end := <-ended; end.Answer != "echo: hello" {
		t.Errorf("the turn ended with %+v", end)
	}
	if n := len(r.api.Seen()); n != 2 {
		t.Errorf("the API was asked %d times", n)
	}
}

// The plugin answers what it has before it leaves, and writes the key nowhere.
func TestItLeavesCleanly(t *testing.T) {
	r := start(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	r.api.Next(
		func(w http.ResponseWriter, _ *http.Request) {
			geminitest.Refuse(w, http.StatusForbidden, "PERMISSION_DENIED", "no access with "+geminitest.Key, "")
		},
		func(w http.ResponseWriter, req *http.Request) {
			close(begun)
			<-finish
			answer(`{"text": "at last"}`)(w, req)
		})
	if end := r.Say("s1", "hello"); !strings.Contains(end.Reason, "no access with [key]") {
		t.Errorf("the turn ended with %+v", end)
	}
	ended := make(chan foreigntest.End, 1)
	go func() { ended <- r.Say("s2", "hello") }()
	<-begun
	r.plugin.Signal(syscall.SIGTERM)
	r.AwaitPlugin(name, plugin.Draining)
	close(finish)
	if end := <-ended; end.Answer != "at last" {
		t.Errorf("the turn ended with %+v", end)
	}
	r.plugin.Wait()
	r.LeftNothing(name)
	if said := r.plugin.Out() + r.plugin.Errs(); strings.Contains(said, geminitest.Key) {
		t.Errorf("it wrote the key:\n%s", said)
	}
}

func TestItSaysWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		env, args []string
		fails     bool
		words     string
	}{
		{nil, nil, true, "GEMINI_API_KEY is not set"},
		{[]string{"GOOGLE_API_KEY=k", "GOOGLE_GEMINI_BASE_URL=nowhere"}, nil, true, "GOOGLE_GEMINI_BASE_URL is not"},
		{[]string{"GEMINI_API_KEY=k"}, []string{"--modle", "x"}, true, `unexpected argument "--modle"`},
		{nil, []string{"--help"}, false, "GOOGLE_GEMINI_BASE_URL"},
	} {
		env := append([]string{"GEMINI_API_KEY=", "GOOGLE_API_KEY=", "GEMINI_MODEL=", "GOOGLE_GEMINI_BASE_URL="}, c.env...)
		p := foreigntest.Spawn(t, t.TempDir(), env, program, c.args...)
		if err := p.Ended(); (err != nil) != c.fails || !strings.Contains(p.Out()+p.Errs(), c.words) {
			t.Errorf("%q %q: %v, %s%s", c.env, c.args, err, p.Out(), p.Errs())
		}
	}
}
