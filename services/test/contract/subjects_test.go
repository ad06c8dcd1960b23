package contract

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/providerapi"
	"skandha.dev/services/internal/senses"
)

// built are subjects by the builder that makes them, and the channel each belongs to.
func built() map[string]map[string]string {
	ref := subject.Ref{Agent: "demo", Session: "s1"}
	out := map[string]map[string]string{
		"Ref.Cause": {
			ref.Cause(subject.Input, "web"): "senseInput", ref.Cause(subject.Confirmation, "web"): "senseConfirmation",
			ref.Cause(subject.Cancel, "web"): "senseCancel", ref.Cause(subject.Command, "web"): "senseCommand",
			ref.Cause(subject.Timer, subject.TimerWriter): "senseTimer",
			ref.Cause(subject.Input, "ui-ann"):            "personInput", ref.Cause(subject.Confirmation, "ui-ann"): "personConfirmation",
			ref.Cause(subject.Cancel, "ui-ann"): "personCancel", ref.Cause(subject.Command, "ui-ann"): "personCommand",
		},
		"Ref.Commit":        {ref.Commit(): "commit"},
		"Ref.Live":          {},
		"Ref.Answer":        {ref.Answer("clock", "ui", "message"): "answer"},
		"Ref.Stream":        {ref.Stream(): "delta"},
		"Ref.Frame":         {ref.Frame(): "frame"},
		"Ref.TimerSchedule": {ref.TimerSchedule("t4-p1-c0"): "timerSchedule", ref.TimerSchedule("a.b >"): "timerSchedule"},
		"Ref.TimerFired":    {ref.TimerFired("t4-p1-c0"): "timerFired", ref.TimerFired(""): "timerFired"},
		"Ref.Dead":          {ref.Dead(): "dead"},
		"Audit":             {subject.Audit: "auditLog"},
		"Executor": {
			subject.Executor(subject.Runner, "r1"): "runner", subject.Executor(subject.Provider, "p1"): "provider",
		},
		"Announce": {
			subject.Announce(subject.Runner, "r1"): "announce", subject.Announce(subject.Provider, "p1"): "announce",
		},
		"Beacon":   {subject.Beacon("core-1"): "beacon"},
		"Probe":    {subject.Probe("core-1"): "probe"},
		"Discover": {subject.Discover(subject.Runner): "discover", subject.Discover(subject.Provider): "discover"},
		"Service": {
			subject.Service(providerapi.ServiceName, "{instance}"):                   "providerQuery",
			subject.Service(providerapi.EmbedderName, providerapi.VerbStatus):        "embedderStatus",
			subject.Service(providerapi.EmbedderName, providerapi.VerbAbsent):        "embedderAbsent",
			subject.Service(providerapi.EmbedderName, providerapi.VerbEmbed):         "embedRequest",
			subject.Service(providerapi.TranscriberName, providerapi.VerbStatus):     "transcriberStatus",
			subject.Service(providerapi.TranscriberName, bus.VerbStop):               "transcriberStop",
			subject.Service(providerapi.TranscriberName, providerapi.VerbAbsent):     "transcriberAbsent",
			subject.Service(providerapi.TranscriberName, providerapi.VerbTranscribe): "transcribeRequest",
			subject.Service(providerapi.SpeakerName, providerapi.VerbStatus):         "speakerStatus",
			subject.Service(providerapi.SpeakerName, bus.VerbStop):                   "speakerStop",
			subject.Service(providerapi.SpeakerName, providerapi.VerbAbsent):         "speakerAbsent",
			subject.Service(providerapi.SpeakerName, providerapi.VerbSpeak):          "speakRequest",
			subject.Service(coreapi.ServiceName, coreapi.VerbTools):                  "coreToolsQuery",
			subject.Service(coreapi.ServiceName, coreapi.VerbSessions):               "coreSessionsQuery",
			subject.Service(coreapi.ServiceName, coreapi.VerbSession):                "coreSessionQuery",
			subject.Service(coreapi.ServiceName, coreapi.VerbMessages):               "coreMessagesQuery",
			subject.Service(coreapi.ServiceName, coreapi.VerbStatus):                 "coreStatusQuery",
			subject.Service(registrar.ServiceName, coreapi.VerbPlugins):              "corePluginsQuery",
			subject.Service(coreapi.AdminName, coreapi.VerbPlugin):                   "corePluginRequest",
			subject.Service(coreapi.ServiceName, coreapi.VerbHooks):                  "coreHooksQuery",
			subject.Service(coreapi.AdminName, coreapi.VerbRefill):                   "coreRefillRequest",
			subject.Service(coreapi.ServiceName, coreapi.VerbMemory):                 "coreMemoryRequest",
			subject.Service(coreapi.ServiceName, coreapi.VerbOutbox):                 "coreOutboxRequest",
			subject.Service(coreapi.ServiceName, coreapi.VerbSchedules):              "coreSchedulesRequest",
			subject.Service(coreapi.AdminName, coreapi.VerbMemory):                   "adminMemoryRequest",
			subject.Service(coreapi.AdminName, coreapi.VerbOutbox):                   "adminOutboxRequest",
			subject.Service(coreapi.AdminName, coreapi.VerbIdentities):               "adminIdentitiesRequest",
			subject.Service(coreapi.AdminName, coreapi.VerbAudit):                    "adminAuditRequest",
			subject.Service(coreapi.AdminName, coreapi.VerbSchedules):                "adminSchedulesRequest",
			subject.Service(coreapi.ServiceName, coreapi.VerbOccur):                  "coreOccurRequest",
			subject.Service(senses.CameraName, senses.VerbLook):                      "lookRequest",
		},
		"Call":       {subject.Call("audit"): "coreCallRequest"},
		"Past":       {subject.Past(ref): "corePastQuery"},
		"SessionsOf": {subject.SessionsOf(ref.Agent): "coreAgentSessionsQuery"},
		"Reply":      {subject.Reply("core", "r1", "core-1", 71): "reply"},
		"Hook":       {},
		"Tool": {
			subject.Tool("weather", "weather:now"): "tool", subject.Tool("weather", ""): "tool",
			subject.Tool("weather", "*.>"): "tool",
		},
		"Replica": {
			subject.Replica(subject.Tool("weather", "weather:now"), "weather-1"): "toolReplica",
			subject.Replica(subject.Generate("local"), "local-1"):                "generateReplica",
		},
		"Generate": {subject.Generate("local"): "generate"},
		"Storage":  {},
		"Guide":    {subject.Guide("souls"): "guideRequest"},
		"Registry": {
			subject.Registry(subject.Register, "weather"):   "register",
			subject.Registry(subject.Heartbeat, "weather"):  "heartbeat",
			subject.Registry(subject.Unregister, "weather"): "unregister",
		},
	}
	for _, t := range event.CommitTypes() {
		out["Ref.Live"][event.Event{Agent: ref.Agent, Session: ref.Session, Type: t}.Live()] = liveChannel(t)
	}
	for _, p := range hook.Points() {
		out["Hook"][subject.Hook(string(p), "audit")] = "hook"
	}
	for _, v := range []plugin.StorageVerb{plugin.Put, plugin.Get, plugin.Delete, plugin.Search} {
		out["Storage"][subject.Storage("chroma", string(v))] = "storage"
	}
	for _, v := range plugin.IndexVerbs() {
		out["Storage"][subject.Storage("chroma", string(v))] = "storage"
	}
	return out
}

// noChannel are the exported functions of package subject that make a string and
// no subject to send on.
var noChannel = map[string]string{
	"Encode": "a token", "Ref.String": "for people", "Ref.Causes": "a filter", "Person": "a writer", "Ref.All": "a filter",
	"Replies": "a filter", "Ref.CausesOf": "filters", "Answer.Subject": "as Reply",
	"BucketKey": "a key of a bucket", "BucketChanges": "a filter", "ManifestKey": "a key", "LeaseKey": "a key",
}

// liveChannel is the name of the channel of an event type.
func liveChannel(t event.Type) string {
	for name, ch := range channels() {
		if ch.Address == "agent.{agent}.{session}."+t.Phase()+"."+t.Name() {
			return name
		}
	}
	return "none"
}

// matches reports whether a subject is one of the channel's.
func (ch channel) matches(s string) bool {
	a, t := strings.Split(ch.Address, "."), strings.Split(s, ".")
	if len(a) != len(t) {
		return false
	}
	for i, token := range a {
		name, isParam := strings.CutPrefix(token, "{")
		if !isParam {
			if token != t[i] {
				return false
			}
			continue
		}
		p := ch.Parameters[strings.TrimSuffix(name, "}")]
		if t[i] == "" || strings.ContainsAny(t[i], "*> \t\r\n") || p.Enum != nil && !slices.Contains(p.Enum, t[i]) {
			return false
		}
	}
	return true
}

func TestEverySubjectIsOneChannelAndEveryChannelIsBuilt(t *testing.T) {
	all := channels()
	unbuilt := map[string]bool{}
	for name, ch := range all {
		if ch.Address != "" { // the reply subject of a request to JetStream
			unbuilt[name] = true
		}
	}
	for builder, subjects := range built() {
		if len(subjects) == 0 {
			t.Errorf("%s has no example", builder)
		}
		for s, want := range subjects {
			var got []string
			for name, ch := range all {
				if ch.Address != "" && ch.matches(s) {
					got = append(got, name)
					delete(unbuilt, name)
				}
			}
			if len(got) != 1 || got[0] != want {
				t.Errorf("%s makes %s, which belongs to the channels %v, want %s", builder, s, got, want)
			}
		}
	}
	for name := range unbuilt {
		t.Errorf("channel %s (%s) is made by no builder of package subject", name, all[name].Address)
	}
}

func TestEveryBuilderIsLookedAt(t *testing.T) {
	known := built()
	for _, f := range parse(t, "subject").funcs {
		if f.Type.Results == nil || len(f.Type.Results.List) != 1 {
			continue
		}
		if id, ok := f.Type.Results.List[0].Type.(*ast.Ident); !ok || id.Name != "string" {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			id, ok := f.Recv.List[0].Type.(*ast.Ident)
			if !ok {
				t.Fatalf("%s has an unusual receiver", name)
			}
			name = id.Name + "." + name
		}
		_, isBuilt := known[name]
		_, excused := noChannel[name]
		if isBuilt == excused {
			t.Errorf("subject.%s: has examples in built: %t, is excused in noChannel: %t", name, isBuilt, excused)
		}
	}
}

// An id is the same to a validator and to the code, for every byte and length.
func TestTheGrammarOfIDsIsThatOfTheCode(t *testing.T) {
	id := files(t).schema(t, "guide/request") // its agent is an id
	check := func(s string) {
		err := id.Validate(map[string]any{"name": "x", "agent": s})
		if (err == nil) != subject.Valid(s) {
			t.Errorf("%q: the code says %t, the schema %v", s, subject.Valid(s), err)
		}
	}
	for b := range 256 {
		check(string(rune(b)))
		check("a" + string(rune(b)))
	}
	for _, n := range []int{0, 1, 63, 64, 65} {
		check(strings.Repeat("x", n))
	}
}
