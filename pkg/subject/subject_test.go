package subject_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
)

var ref = subject.Ref{Agent: "demo", Session: "s1"}

func TestSubjectsAreTheContract(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{ref.Cause(subject.Input, "web"), "agent.demo.s1.sense.input.web"},
		{ref.Cause(subject.Timer, subject.TimerWriter), "agent.demo.s1.sense.timer.core"},
		{ref.Cause(subject.Confirmation, subject.Person("ann")), "agent.demo.s1.person.confirmation.ann"},
		{ref.Causes(), "agent.demo.s1.*.*.*"},
		{strings.Join(ref.CausesOf(subject.Input), " "), "agent.demo.s1.sense.input.* agent.demo.s1.person.input.*"},
		{ref.Commit(), "agent.demo.s1.commit"},
		{ref.Live("plan", "requested"), "agent.demo.s1.plan.requested"},
		{ref.All(), "agent.demo.s1.>"},
		{ref.Stream(), "stream.demo.s1"},
		{ref.Frame(), "media.frame.demo.s1"},
		{ref.TimerSchedule("t4-p1-c0"), "timer.demo.s1.t4-_p1-_c0"},
		{ref.TimerFired("a.b"), "fired.demo.s1.a-2Eb"},
		{ref.Dead(), "dead.demo.s1"},
		{subject.Executor(subject.Runner, "r1"), "runner.r1"},
		{subject.Executor(subject.Provider, "p1"), "provider.p1"},
		{subject.Announce(subject.Runner, "r1"), "announce.runner.r1"},
		{subject.Discover(subject.Provider), "discover.provider"},
		{subject.Service("core", "status"), "service.core.status"},
		{subject.Reply("core", "r1", "core-1", 71), "reply.core.r1.core-1.1z"},
		{subject.Replies("core", "core-1"), "reply.core.*.core-1.*"},
		{subject.Hook("before_act", "audit"), "hook.before_act.audit"},
		{subject.Tool("weather", "weather:now"), "tool.weather.weather--now"},
		{subject.Generate("local"), "llm.local.generate"},
		{subject.Storage("chroma", "search"), "storage.chroma.search"},
		{subject.Guide("souls"), "guide.souls"},
		{subject.Registry(subject.Register, "weather"), "plugin.register.weather"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

// A free name cannot add a token, a wildcard or an empty token to a subject.
func TestFreeNamesStayOneToken(t *testing.T) {
	for _, name := range append([]string{"a.>", "*"}, hostile...) {
		for _, s := range []string{
			subject.Tool("p", name), subject.Hook(name, "p"), subject.Storage("p", name),
			"x." + ref.TimerSchedule(name)[len("timer.demo."):], "x." + ref.TimerFired(name)[len("fired.demo."):],
		} {
			tokens := strings.Split(s, ".")
			if len(tokens) != 3 || strings.ContainsAny(s, "*> \t\r\n\x00") || strings.Contains(s, "..") ||
				strings.HasSuffix(s, ".") {
				t.Errorf("the name %q gives the subject %q", name, s)
			}
		}
	}
}

func TestParseReversesBuild(t *testing.T) {
	for _, kind := range append(subject.CauseKinds(), "telepathy") {
		c, err := subject.ParseCause(ref.Cause(kind, "web"))
		if err != nil || c != (subject.CauseSubject{Ref: ref, Kind: kind, Writer: "web"}) {
			t.Errorf("ParseCause of a cause %q = %+v, %v", kind, c, err)
		}
	}
	if r, err := subject.ParseCommit(ref.Commit()); err != nil || r != ref {
		t.Errorf("ParseCommit = %v, %v", r, err)
	}
	if r, phase, event, err := subject.ParseLive(ref.Live("ui", "tool_call_request")); err != nil || r != ref ||
		phase != "ui" || event != "tool_call_request" {
		t.Errorf("ParseLive = %v, %q, %q, %v", r, phase, event, err)
	}
	for _, id := range []string{"t4-p1-c0", "", "a.b >*", "é"} {
		if r, got, err := subject.ParseFired(ref.TimerFired(id)); err != nil || r != ref || got != id {
			t.Errorf("ParseFired of %q = %v, %q, %v", id, r, got, err)
		}
	}
	for _, n := range []uint64{0, 1, 35, 36, math.MaxUint64} {
		a, err := subject.ParseReply(subject.Reply("core", "r1", "core-1", n))
		if err != nil || a != (subject.Answer{Caller: "core", Responder: "r1", Instance: "core-1", N: n}) {
			t.Errorf("ParseReply of %d = %+v, %v", n, a, err)
		}
	}
}

// A client cannot write as a person, nor a person as a client.
func TestPeopleHaveSubjectsOfTheirOwn(t *testing.T) {
	c, err := subject.ParseCause(ref.Cause(subject.Confirmation, subject.Person("ann")))
	if err != nil || c != (subject.CauseSubject{Ref: ref, Kind: subject.Confirmation, Writer: "ui-ann"}) {
		t.Errorf("ParseCause of a person's cause = %+v, %v", c, err)
	}
	c, err = subject.ParseCause("agent.demo.s1.sense.confirmation.ui-ann")
	if err != nil || c != (subject.CauseSubject{Ref: ref, Kind: subject.Confirmation, Writer: "ui-ann", Old: true}) {
		t.Errorf("ParseCause of a person's cause on the subject of contract 1 = %+v, %v", c, err)
	}
	for _, s := range []string{"agent.demo.s1.person.input.ui-ann", "agent.demo.s1.person.input.a.b"} {
		if _, err := subject.ParseCause(s); !errors.Is(err, subject.ErrInvalidSubject) {
			t.Errorf("ParseCause(%q): %v, want ErrInvalidSubject", s, err)
		}
	}
}

// parsers gives each parser with the shape of its subjects; %s is where a token goes.
var parsers = map[string]struct {
	shapes []string
	parse  func(string) error
}{
	"ParseCause": {
		[]string{
			"agent.%s.s1.sense.input.web", "agent.demo.%s.sense.input.web", "agent.demo.s1.sense.%s.web",
			"agent.demo.s1.sense.input.%s", "agent.%s.s1.person.input.ann", "agent.demo.%s.person.input.ann",
			"agent.demo.s1.person.%s.ann", "agent.demo.s1.person.input.%s",
		},
		func(s string) error { _, err := subject.ParseCause(s); return err },
	},
	"ParseCommit": {
		[]string{"agent.%s.s1.commit", "agent.demo.%s.commit"},
		func(s string) error { _, err := subject.ParseCommit(s); return err },
	},
	"ParseLive": {
		[]string{"agent.%s.s1.ui.ready", "agent.demo.%s.ui.ready", "agent.demo.s1.%s.ready", "agent.demo.s1.ui.%s"},
		func(s string) error { _, _, _, err := subject.ParseLive(s); return err },
	},
	"ParseFired": {
		[]string{"fired.%s.s1.t1", "fired.demo.%s.t1"},
		func(s string) error { _, _, err := subject.ParseFired(s); return err },
	},
	"ParseReply": {
		[]string{"reply.%s.r1.core-1.1", "reply.core.%s.core-1.1", "reply.core.r1.%s.1"},
		func(s string) error { _, err := subject.ParseReply(s); return err },
	},
}

func TestParsersRefuseInjections(t *testing.T) {
	for name, p := range parsers {
		for _, shape := range p.shapes {
			if err := p.parse(strings.Replace(shape, "%s", "ok", 1)); err != nil {
				t.Errorf("%s refuses %s: %v", name, shape, err)
			}
			for _, h := range hostile {
				s := strings.Replace(shape, "%s", h, 1)
				if err := p.parse(s); !errors.Is(err, subject.ErrInvalidSubject) {
					t.Errorf("%s(%q): %v, want ErrInvalidSubject", name, s, err)
				}
			}
		}
	}
}

func TestParsersRefuseTheSubjectsOfOthers(t *testing.T) {
	all := []string{
		ref.Cause(subject.Input, "web"), ref.Commit(), ref.Live("ui", "ready"), ref.TimerFired("t1"),
		subject.Reply("core", "r1", "core-1", 7), ref.TimerSchedule("t1"), ref.Stream(), ref.Dead(), ref.All(), ref.Causes(),
		"", ".", "agent", "agent.demo.s1", "agent.demo.s1.", "AGENT.demo.s1.commit", "agent.demo.s1.Commit",
		" agent.demo.s1.commit",
		"reply.core.r1.core-1.01", "reply.core.r1.core-1.1Z", "reply.core.r1.core-1.-1", "reply.core.r1.core-1.",
		"reply.core.r1.core-1.1.2", "reply.core.r1.core-1.zzzzzzzzzzzzzz", "reply.r1.core-1.1", "fired.demo.s1.", "fired.demo.s1.a-2e", "fired.demo.s1.t1.t2",
	}
	for name, p := range parsers {
		taken := 0
		for _, s := range all {
			err := p.parse(s)
			if err == nil {
				taken++
			} else if !errors.Is(err, subject.ErrInvalidSubject) {
				t.Errorf("%s(%q): %v, want ErrInvalidSubject", name, s, err)
			}
		}
		if taken != 1 {
			t.Errorf("%s takes %d of the subjects, want 1: its own", name, taken)
		}
	}
}

func TestAResponderAnswersUnderItsOwnNameOnly(t *testing.T) {
	for s, want := range map[string]bool{
		"reply.core.weather.core-1.1":    true,
		"_R_.Vw3qGm.yxOOca":              true, // by the server, for a request from another account
		"reply.core.other.core-1.1":      false,
		"reply.weather.core.core-1.1":    false,
		"reply.weather.core-1.1":         false, // of the first contract
		"agent.demo.s1.commit":           false, // the forged commit of a confused deputy
		"_INBOX.abc.1":                   false,
		"reply.core.weather.core-1":      false,
		"reply.core.weather.>":           false,
		"reply.core.weather.core-1.*":    false,
		"reply.*.weather.core-1.1":       false,
		"reply.core.weather.core-1.1\r":  false,
		"reply.core.weather.core-1.1 0":  false,
		"$JS.API.STREAM.DELETE.X":        false,
		"reply.core.weather.core-1.1.1":  false,
		"reply.core.weatherx.core-1.1":   false,
		"":                               false,
		"reply..weather.core-1.1":        false,
		"reply.core.weather.core-1.0001": false,
	} {
		if got := subject.IsReplyFrom(s, "weather"); got != want {
			t.Errorf("IsReplyFrom(%q) = %t", s, got)
		}
	}
}

// matches is how NATS matches a filter.
func matches(filter, s string) bool {
	f, t := strings.Split(filter, "."), strings.Split(s, ".")
	for i, token := range f {
		switch {
		case token == ">":
			return len(t) > i
		case i >= len(t) || token != "*" && token != t[i]:
			return false
		}
	}
	return len(f) == len(t)
}

func TestFiltersMatchTheirSubjectsAndNoOthers(t *testing.T) {
	causes := []string{
		ref.Cause(subject.Input, "web"), ref.Cause(subject.Timer, "core"), ref.Cause(subject.Cancel, subject.Person("ann")),
	}
	live := []string{ref.Live("ui", "ready"), ref.Live("sense", "perceived")}
	groups := map[string][]string{
		subject.AllCauses: causes, subject.AllCommits: {ref.Commit()}, "agent.*.*.*.*": live,
		subject.AllTimers: {ref.TimerSchedule("a.b")}, subject.AllFired: {ref.TimerFired("a.b")},
		subject.AllDead: {ref.Dead()}, "stream.*.*": {ref.Stream()},
		"media.frame.*.*":        {ref.Frame()},
		subject.AllAnnouncements: {subject.Announce(subject.Runner, "r1"), subject.Announce(subject.Provider, "p1")},
	}
	for filter, own := range groups {
		for of, subjects := range groups {
			for _, s := range subjects {
				if got := matches(filter, s); got != (filter == of) {
					t.Errorf("%s matches %s: %t", filter, s, got)
				}
			}
		}
		if len(own) == 0 {
			t.Errorf("%s has no subject", filter)
		}
	}
	for _, s := range append(append([]string{ref.Commit()}, causes...), live...) {
		if !matches(ref.All(), s) {
			t.Errorf("%s does not match %s", ref.All(), s)
		}
		if got := matches(ref.Causes(), s); got != slices.Contains(causes, s) {
			t.Errorf("%s matches %s: %t", ref.Causes(), s, got)
		}
	}
	own := subject.Replies("core", "core-1")
	if !matches(own, subject.Reply("core", "r1", "core-1", 5)) || matches(own, subject.Reply("core", "r1", "core-2", 5)) ||
		matches(own, subject.Reply("ui", "r1", "core-1", 5)) {
		t.Error("Replies does not match a caller's own answers alone")
	}
}

func FuzzParseCause(f *testing.F) {
	for _, kind := range subject.CauseKinds() {
		f.Add(ref.Cause(kind, "web"))
	}
	for _, h := range hostile {
		for _, shape := range parsers["ParseCause"].shapes {
			f.Add(strings.Replace(shape, "%s", h, 1))
		}
	}
	f.Add(ref.Commit())
	f.Fuzz(func(t *testing.T, s string) {
		c, err := subject.ParseCause(s)
		if err != nil {
			if !errors.Is(err, subject.ErrInvalidSubject) || c != (subject.CauseSubject{}) {
				t.Fatalf("ParseCause(%q) = %+v, %v", s, c, err)
			}
			return
		}
		if !subject.Valid(c.Agent) || !subject.Valid(c.Session) || !subject.Valid(c.Kind) || !subject.Valid(c.Writer) {
			t.Fatalf("ParseCause(%q) = %+v holds no ids", s, c)
		}
		if again := c.Cause(c.Kind, c.Writer); again != s {
			t.Fatalf("ParseCause(%q) builds %q", s, again)
		}
	})
}
