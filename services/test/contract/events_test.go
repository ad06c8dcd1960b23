package contract

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
)

// schemaOf is the schema of an event type's payload.
func schemaOf(t event.Type) string {
	return "events/" + strings.TrimPrefix(string(t), "skandha.")
}

func allTypes() []event.Type {
	return append(append(event.CauseTypes(), event.CommitTypes()...), event.TypeCommit, event.TypeDelta, event.TypeOutput)
}

func TestEveryEventTypeHasASchemaOfItsType(t *testing.T) {
	c := files(t)
	known := map[string]bool{}
	for _, typ := range allTypes() {
		name := schemaOf(typ)
		known[name] = true
		n := c.node(t, name)
		doc := c.docs[base+name+".json"]
		if doc["title"] != string(typ) {
			t.Errorf("%s: the title is %v, want the type", name, doc["title"])
		}
		msg, ok := pointer(doc, "/$defs/message").(map[string]any)
		if !ok {
			t.Errorf("%s has no $defs/message", name)
			continue
		}
		if !strings.Contains(string(mustJSON(t, msg)), `"const":"`+string(typ)+`"`) {
			t.Errorf("%s: the message is not of type %s", name, typ)
		}
		if v, ok := goTypes[name].(event.Payload); ok && v.EventType() != typ {
			t.Errorf("%s: Go's %T is of type %s", name, v, v.EventType())
		} else if !ok && typ != event.TypeDelta && typ != event.TypeOutput {
			t.Errorf("%s: Go's %T is no payload", n.doc, goTypes[name])
		}
	}
	for _, name := range c.names() {
		if strings.HasSuffix(name, ".v1") && strings.HasPrefix(name, "events/") && !known[name] {
			t.Errorf("%s is the schema of a type that package event does not list", name)
		}
	}
}

// The constants, the lists and the schemas name the same types.
func TestListsOfEventTypesAreComplete(t *testing.T) {
	listed := map[string]bool{}
	for _, typ := range allTypes() {
		listed[string(typ)] = true
	}
	for _, v := range parse(t, "event").consts["Type"] {
		if !listed[v] {
			t.Errorf("%s is in none of the lists of package event", v)
		}
		delete(listed, v)
	}
	for v := range listed {
		t.Errorf("%s is listed and no constant", v)
	}
	ofEvent := files(t).node(t, "events/event")
	types, _ := ofEvent.child("properties", "type")
	var want []string
	for _, typ := range event.CommitTypes() {
		want = append(want, string(typ))
	}
	if a, b := sorted(want), sorted(types.strings("enum")); strings.Join(a, " ") != strings.Join(b, " ") {
		t.Errorf("a commit may carry %v, events/event.json says %v", a, b)
	}
}

// Every example of a payload, put into an envelope as core does, is a valid event,
// and no event of another type.
func TestPayloadsMakeValidEvents(t *testing.T) {
	c := files(t)
	anyEvent := c.schema(t, "events/event")
	types := map[string]event.Type{}
	for _, typ := range event.CommitTypes() {
		types[schemaOf(typ)] = typ
	}
	for _, e := range examples(t, "valid") {
		typ, ok := types[e.schema]
		if !ok {
			continue
		}
		ev := event.Event{
			SpecVersion: event.SpecVersion, ID: "c1.1", Source: event.Source, Type: typ, Agent: "demo", Session: "s1",
			Data: e.body,
		}
		b := ev.AppendJSON(nil)
		if err := anyEvent.Validate(decode(t, b)); err != nil {
			t.Errorf("%s: %v", e, err)
		}
		for other, otherType := range types {
			if err := c.schema(t, other+".message").Validate(decode(t, b)); (err == nil) != (otherType == typ) {
				t.Errorf("%s as %s: %v", e, otherType, err)
			}
		}
	}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
