package contract

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"gopkg.in/yaml.v3"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

type reference struct {
	Ref string `yaml:"$ref"`
}

type channel struct {
	Address     string
	Description string
	Parameters  map[string]struct {
		Description string
		Enum        []string
	}
	Messages map[string]reference
}

type operation struct {
	Action      string
	Channel     reference
	Description string
	Tags        []struct{ Name string }
	Messages    []reference
	Reply       *struct {
		Channel  reference
		Messages []reference
	}
}

type message struct {
	Name, Title, Summary string
	ContentType          string `yaml:"contentType"`
	Payload              *struct {
		SchemaFormat string `yaml:"schemaFormat"`
		Schema       reference
	}
	Traits     []reference
	EmptyBody  bool `yaml:"x-empty-body"`
	OpaqueBody bool `yaml:"x-opaque-body"`
}

type asyncAPI struct {
	AsyncAPI string `yaml:"asyncapi"`
	Info     struct {
		Title, Version, Description string
	}
	Servers    map[string]struct{ Host, Protocol string }
	Channels   map[string]channel
	Operations map[string]operation
	Components struct {
		Messages      map[string]message
		MessageTraits map[string]struct {
			Headers struct{ Properties map[string]reference }
		} `yaml:"messageTraits"`
		Schemas map[string]struct{ Type, Description, Pattern string }
	}
	tree any // all of it, as JSON
}

var api = sync.OnceValue(func() *asyncAPI {
	b, err := os.ReadFile(filepath.Join(root, "asyncapi.yaml"))
	if err != nil {
		panic(err)
	}
	a := &asyncAPI{}
	var raw any
	if err := yaml.Unmarshal(b, a); err != nil {
		panic(err)
	}
	if err := yaml.Unmarshal(b, &raw); err != nil {
		panic(err)
	}
	j, err := json.Marshal(raw)
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(j, &a.tree); err != nil {
		panic(err)
	}
	return a
})

func channels() map[string]channel { return api().Channels }

func TestReferencesOfAsyncAPIResolve(t *testing.T) {
	c := files(t)
	n := 0
	walk("", api().tree, func(at string, m map[string]any) {
		ref, ok := m["$ref"].(string)
		if !ok {
			return
		}
		n++
		if p, local := strings.CutPrefix(ref, "#"); local {
			if pointer(api().tree, p) == nil {
				t.Errorf("%s: %s leads nowhere", at, ref)
			}
			return
		}
		path, fragment, _ := strings.Cut(strings.TrimPrefix(ref, "./"), "#")
		doc, ok := c.docs[base+path]
		if _, isSchema := pointer(doc, fragment).(map[string]any); !ok || !isSchema {
			t.Errorf("%s: %s leads to no schema", at, ref)
			return
		}
		if fragment == "/$defs/message" {
			c.schema(t, strings.TrimSuffix(path, ".json")+".message")
		}
	})
	if n < 200 {
		t.Errorf("only %d references were found", n)
	}
}

// allowed are the fields that AsyncAPI 3.0 gives each object; x- extensions aside.
var allowed = map[string][]string{
	"": {
		"asyncapi", "id", "info", "servers", "defaultContentType", "channels", "operations", "components",
	},
	"info": {
		"title", "version", "description", "termsOfService", "contact", "license", "tags", "externalDocs",
	},
	"servers/*": {
		"host", "protocol", "protocolVersion", "pathname", "description", "title", "summary", "variables", "security", "tags",
		"externalDocs", "bindings",
	},
	"channels/*": {
		"address", "messages", "title", "summary", "description", "servers", "parameters", "tags", "externalDocs", "bindings",
	},
	"channels/*/parameters/*": {"enum", "default", "description", "examples", "location"},
	"operations/*": {
		"action", "channel", "title", "summary", "description", "security", "tags", "externalDocs", "bindings", "traits",
		"messages", "reply",
	},
	"operations/*/reply": {"address", "channel", "messages"},
	"components": {
		"schemas", "servers", "channels", "operations", "messages", "securitySchemes", "serverVariables", "parameters",
		"correlationIds",
		"replies", "replyAddresses", "externalDocs", "tags", "operationTraits", "messageTraits", "serverBindings",
		"channelBindings",
		"operationBindings", "messageBindings",
	},
	"components/messages/*": {
		"headers", "payload", "correlationId", "contentType", "name", "title", "summary", "description", "tags",
		"externalDocs", "bindings", "examples", "traits",
	},
	"components/messages/*/payload": {"schemaFormat", "schema"},
	"components/messageTraits/*": {
		"headers", "correlationId", "contentType", "name", "title", "summary", "description", "tags", "externalDocs",
		"bindings", "examples",
	},
}

func TestAsyncAPIHasTheFieldsOfVersion3(t *testing.T) {
	if a := api(); a.AsyncAPI != "3.0.0" || a.Info.Title == "" || a.Info.Version == "" ||
		a.Servers["local"].Protocol != "nats" {
		t.Errorf("version %q, info %q %q, servers %v", a.AsyncAPI, a.Info.Title, a.Info.Version, a.Servers)
	}
	for where, names := range allowed {
		for _, m := range at(api().tree, where) {
			for k := range m {
				if !slices.Contains(names, k) && !strings.HasPrefix(k, "x-") {
					t.Errorf("%s: %q is no field of AsyncAPI 3.0", where, k)
				}
			}
		}
	}
}

// at lists the objects at a path whose * matches any name.
func at(v any, where string) []map[string]any {
	out := []map[string]any{}
	m, ok := v.(map[string]any)
	switch key, rest, _ := strings.Cut(where, "/"); {
	case !ok:
	case where == "":
		out = append(out, m)
	case key == "*":
		for _, x := range m {
			out = append(out, at(x, rest)...)
		}
	default:
		out = append(out, at(m[key], rest)...)
	}
	return out
}

var parameter = regexp.MustCompile(`\{([^}]*)\}`)

func TestChannelsDeclareTheirParameters(t *testing.T) {
	addresses := map[string]string{}
	for name, ch := range channels() {
		if other := addresses[ch.Address]; other != "" {
			t.Errorf("channels %s and %s have the same address", name, other)
		}
		addresses[ch.Address] = name
		if ch.Description == "" || len(ch.Messages) == 0 {
			t.Errorf("channel %s: description %q, %d messages", name, ch.Description, len(ch.Messages))
		}
		declared := map[string]bool{}
		for p, v := range ch.Parameters {
			declared[p] = true
			if v.Description == "" {
				t.Errorf("channel %s: parameter %s has no description", name, p)
			}
		}
		for _, m := range parameter.FindAllStringSubmatch(ch.Address, -1) {
			if !declared[m[1]] {
				t.Errorf("channel %s: parameter %s of the address is not declared", name, m[1])
			}
			delete(declared, m[1])
		}
		for p := range declared {
			t.Errorf("channel %s: parameter %s is not in the address %s", name, p, ch.Address)
		}
		for id, ref := range ch.Messages {
			if ref.Ref != "#/components/messages/"+id {
				t.Errorf("channel %s: message %s is %s", name, id, ref.Ref)
			}
		}
	}
}

// parties are who takes part.
var parties = []string{"listener", "ui", "core", "runner", "provider", "plugin", "server", "operator"}

func TestOperationsAreSound(t *testing.T) {
	sends, receives, replies := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for name, op := range api().Operations {
		ch := strings.TrimPrefix(op.Channel.Ref, "#/channels/")
		if _, ok := channels()[ch]; !ok {
			t.Errorf("%s: channel %s is not there", name, op.Channel.Ref)
		}
		switch op.Action {
		case "send":
			sends[ch] = true
		case "receive":
			receives[ch] = true
		default:
			t.Errorf("%s: action %q", name, op.Action)
		}
		if op.Description == "" || len(op.Tags) == 0 || len(op.Messages) == 0 {
			t.Errorf("%s: description %q, parties %v, %d messages", name, op.Description, op.Tags, len(op.Messages))
		}
		for _, p := range op.Tags {
			if !slices.Contains(parties, p.Name) {
				t.Errorf("%s: nobody is called %q", name, p.Name)
			}
		}
		checkMessages(t, name, ch, op.Messages)
		if op.Reply != nil {
			ch := strings.TrimPrefix(op.Reply.Channel.Ref, "#/channels/")
			replies[ch] = true
			checkMessages(t, name+"'s reply", ch, op.Reply.Messages)
			if len(op.Reply.Messages) == 0 {
				t.Errorf("%s: the reply has no messages", name)
			}
		}
	}
	for name := range channels() {
		if !replies[name] && (!sends[name] || !receives[name]) {
			t.Errorf("channel %s: somebody sends: %t, somebody receives: %t", name, sends[name], receives[name])
		}
	}
}

// checkMessages verifies that an operation's messages are some of its channel's.
func checkMessages(t *testing.T, op, ch string, refs []reference) {
	t.Helper()
	for _, r := range refs {
		id, ok := strings.CutPrefix(r.Ref, "#/channels/"+ch+"/messages/")
		if _, has := channels()[ch].Messages[id]; !ok || !has {
			t.Errorf("%s: %s is no message of channel %s", op, r.Ref, ch)
		}
	}
}

func TestMessagesAreDescribedAndUsed(t *testing.T) {
	used := map[string]bool{}
	for _, ch := range channels() {
		for id := range ch.Messages {
			used[id] = true
		}
	}
	traits := map[string]bool{}
	payloads := map[string]bool{}
	for id, m := range api().Components.Messages {
		if m.Name != id || m.Title == "" || m.Summary == "" || !used[id] {
			t.Errorf("message %s: name %q, title %q, summary %q, used %t", id, m.Name, m.Title, m.Summary, used[id])
		}
		hasPayload := m.Payload != nil && m.Payload.Schema.Ref != ""
		if hasPayload == (m.EmptyBody || m.OpaqueBody) || m.EmptyBody && m.OpaqueBody {
			t.Errorf("message %s: payload %t, empty %t, opaque %t", id, hasPayload, m.EmptyBody, m.OpaqueBody)
		}
		if hasPayload {
			path, _, _ := strings.Cut(strings.TrimPrefix(m.Payload.Schema.Ref, "./"), "#")
			payloads[strings.TrimSuffix(path, ".json")] = true
			if m.Payload.SchemaFormat != "application/schema+json;version=draft-2020-12" || m.ContentType == "" {
				t.Errorf("message %s: schema format %q, content type %q", id, m.Payload.SchemaFormat, m.ContentType)
			}
		}
		for _, r := range m.Traits {
			traits[strings.TrimPrefix(r.Ref, "#/components/messageTraits/")] = true
		}
	}
	for name := range api().Components.MessageTraits {
		if !traits[name] {
			t.Errorf("trait %s is not used", name)
		}
	}
	// Every schema is somebody's body, or part of one.
	reached := map[string]bool{}
	var reach func(name string)
	c := files(t)
	reach = func(name string) {
		if reached[name] {
			return
		}
		reached[name] = true
		id := base + name + ".json"
		walk("", c.docs[id], func(_ string, m map[string]any) {
			if ref, ok := m["$ref"].(string); ok {
				reach(strings.TrimSuffix(strings.TrimPrefix(c.lookup(t, id, ref).doc, base), ".json"))
			}
		})
	}
	for name := range payloads {
		reach(name)
	}
	for _, name := range c.names() {
		if !reached[name] && !strings.HasPrefix(name, "ui/") { // the bridge's APIs are not on the bus
			t.Errorf("schemas/%s.json is in no message", name)
		}
	}
}

func TestEveryEventTypeHasItsChannelAndMessage(t *testing.T) {
	bySchema := map[string]string{}
	for id, m := range api().Components.Messages {
		if m.Payload != nil {
			bySchema[m.Payload.Schema.Ref] = id
		}
	}
	for _, typ := range append(event.CauseTypes(), append(event.CommitTypes(), event.TypeDelta, event.TypeOutput)...) {
		id := bySchema["./"+schemaOf(typ)+".json#/$defs/message"]
		if id == "" {
			t.Errorf("%s has no message", typ)
			continue
		}
		var on []string
		for name, ch := range channels() {
			if _, ok := ch.Messages[id]; ok && name != "answer" { // has copies for one writer
				on = append(on, name)
			}
		}
		want := 1
		if slices.Contains(event.CauseTypes(), typ) && typ != event.TypeTimer {
			want = 2 // on those of clients and those of people
		}
		if len(on) != want {
			t.Errorf("%s is sent on the channels %v, want %d", typ, on, want)
		}
		if slices.Contains(event.CommitTypes(), typ) && (len(on) != 1 || on[0] != liveChannel(typ)) {
			t.Errorf("%s is sent on %v, its subject is that of %s", typ, on, liveChannel(typ))
		}
	}
}

func TestHeadersAreThoseOfTheCode(t *testing.T) {
	declared := map[string]bool{}
	for name, s := range api().Components.Schemas {
		declared[name] = true
		if s.Type != "string" || s.Description == "" {
			t.Errorf("header %s: type %q, description %q", name, s.Type, s.Description)
		}
		if _, err := regexp.Compile(s.Pattern); err != nil {
			t.Errorf("header %s: %v", name, err)
		}
	}
	used := map[string]bool{}
	for trait, tr := range api().Components.MessageTraits {
		if len(tr.Headers.Properties) == 0 {
			t.Errorf("trait %s has no headers", trait)
		}
		for h := range tr.Headers.Properties {
			used[h] = true
		}
	}
	for h := range declared {
		if !used[h] {
			t.Errorf("header %s is on no message", h)
		}
	}
	for _, pkg := range []string{"bus", "../services/internal/journal"} {
		for _, v := range parse(t, pkg).consts[""] {
			if strings.HasPrefix(v, "Skandha-") && !declared[v] {
				t.Errorf("package %s has the header %s, asyncapi.yaml has not", pkg, v)
			}
		}
	}
	if !declared[bus.DeadlineHeader] || !declared[bus.ErrorHeader] || !declared[bus.ClaimHeader] {
		t.Error("a header of package bus is not declared")
	}
}

// The text gives examples of encoded names; they are right.
func TestTheTextEncodesNamesAsTheCodeDoes(t *testing.T) {
	pairs := regexp.MustCompile("`([^`]+)` is `([^`]+)`").FindAllStringSubmatch(strings.ReplaceAll(api().Info.Description,
		"\n", " "), -1)
	if len(pairs) < 3 {
		t.Fatalf("only %d examples were found", len(pairs))
	}
	for _, p := range pairs {
		if got := subject.Encode(p[1]); got != p[2] {
			t.Errorf("the text says that %q is %q, the code says %q", p[1], p[2], got)
		}
	}
	limits := []any{bus.ClaimThreshold, subject.MaxIDLen}
	for _, n := range limits {
		if !strings.Contains(api().Info.Description, fmt.Sprint(n)) {
			t.Errorf("the text does not speak of the limit %v", n)
		}
	}
}
