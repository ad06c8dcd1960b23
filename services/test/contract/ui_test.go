package contract

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/timeline"
	"skandha.dev/services/test/transporttest"
	ui "skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// placeless are the notifications that are not in the log.
var placeless = []string{ui.OnDelta, ui.OnToolOutput, ui.OnAttached, ui.OnBus, ui.OnDropped}

// isPlace reports whether the property is the place in the log, which the handlers put
// before the parameters of a notification that was encoded for all.
func isPlace(typ reflect.Type, name string) bool {
	return name == "id" && typ.PkgPath() == reflect.TypeFor[ui.About]().PkgPath()
}

// renote reads an example of a notification and writes it again, its place before the
// rest, as the handlers do.
func renote(t *testing.T, e example) []byte {
	t.Helper()
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(e.body, &parts); err != nil {
		t.Fatal(err)
	}
	place := parts["id"]
	delete(parts, "id")
	typ, _ := goType(e.schema)
	b := reencode(t, mustJSON(t, parts), reflect.New(typ).Interface(), true)
	if place != nil {
		b = append(append(append([]byte(`{"id":`), place...), ','), b[1:]...)
	}
	return b
}

// consistentUI are the rules between the fields of notifications.
var consistentUI = map[reflect.Type]func(*filler, any){
	reflect.TypeFor[ui.Audit](): func(f *filler, p any) {
		consistent[reflect.TypeFor[event.Audited]()](f, &p.(*ui.Audit).Audited)
	},
	reflect.TypeFor[ui.TurnEnd](): func(f *filler, p any) {
		e := p.(*ui.TurnEnd)
		recorded, failed := f.value("events/reflect.recorded.v1").(event.Recorded),
			f.value("events/turn.failed.v1").(event.TurnFailed)
		if e.Recorded, e.Failed = &recorded, nil; f.r.IntN(2) == 0 {
			e.Recorded, e.Failed = nil, &failed
		}
	},
	reflect.TypeFor[timeline.Span](): consistentSpan,
	reflect.TypeFor[ui.Commit](): func(f *filler, p any) {
		c := p.(*ui.Commit)
		for i := range c.Events {
			e := &c.Events[i]
			e.Agent, e.Session = "demo", "s1"
			e.Type = event.CommitTypes()[f.r.IntN(len(event.CommitTypes()))]
			if e.Data = f.encode(f.value(schemaOf(e.Type))); e.Type == event.TypeCheckpoint {
				e.Data = json.RawMessage(`{"reason":"retention"}`)
			}
		}
	},
}

// The constants, the schemas and the envelope name the same notifications.
func TestEveryNotificationHasASchemaOfItsName(t *testing.T) {
	c := files(t)
	methods, _ := c.node(t, "ui/notification").child("properties", "method")
	want := sorted(parse(t, "../services/uibridge/contract").consts[""])
	if have := sorted(methods.strings("enum")); !slices.Equal(have, want) {
		t.Errorf("Go tells %v, schemas/ui/notification.json has %v", want, have)
	}
	var have []string
	for _, name := range c.names() {
		if method, ok := strings.CutPrefix(name, "ui/on"); ok {
			have = append(have, "on"+method)
			if _, place := c.node(t, name).child("properties", "id"); place == slices.Contains(placeless, "on"+method) {
				t.Errorf("%s: it has a place: %t", name, place)
			}
		}
	}
	if !slices.Equal(sorted(have), want) {
		t.Errorf("Go tells %v, schemas/ui has %v", want, sorted(have))
	}
	envelope := c.schema(t, "ui/notification")
	for _, e := range examples(t, "invalid") {
		method, ok := strings.CutPrefix(e.schema, "ui/")
		if !ok || !slices.Contains(want, method) {
			continue
		}
		b := mustJSON(t, map[string]any{"jsonrpc": "2.0", "method": method, "params": json.RawMessage(e.body)})
		if envelope.Validate(decode(t, b)) == nil {
			t.Errorf("%s is accepted as params of the method", e)
		}
	}
}

// paramsOf reads the parameters of a method as the handlers do; the session is the
// connection's. Of methods that look it does not matter that nobody answers them.
func paramsOf(t *testing.T, d *request.Desk, method string, raw json.RawMessage) error {
	t.Helper()
	here := request.Origin{
		Ref:   subject.Ref{Agent: "main", Session: "s1"},
		Shown: func(subject.Ref, string) string { return "9b74c9897bac770ffc029102a200c5de" },
	}
	var err error
	switch method {
	case "attach":
		_, err = request.Attachment(raw, here)
	case "detach":
		err = request.Decode(raw)
	default:
		_, err = d.Call(t.Context(), transporttest.Principal(), here, method, raw)
	}
	var e *ui.Error
	if _, looks := transporttest.Methods()[method]; looks && errors.As(err, &e) &&
		(e.Code == ui.CodeUnavailable || e.Code == ui.CodeNotFound) {
		return nil
	}
	return err
}

// The handlers' parameters and those of the methods' schemas have the same names, in
// the same order, and of the same types.
func TestParametersOfMethodsAreWhatTheHandlersRead(t *testing.T) {
	c := files(t)
	d := desk(t)
	for _, method := range d.Names() {
		n := c.node(t, "ui/methods/"+method)
		props, _ := n.child("properties")
		order := "none"
		if len(props.m) > 0 {
			order = strings.Join(positional(t, c, n), ", ")
		}
		var e *ui.Error
		err := paramsOf(t, d, method, json.RawMessage(`{"nonsense":1}`))
		if !errors.As(err, &e) || e.Field != "nonsense" || !strings.HasSuffix(e.Message, "available: "+order) {
			t.Errorf("%s: the schema has %s; the handlers report: %v", method, order, err)
		}
		for name := range props.m {
			b := mustJSON(t, map[string]any{name: map[string]int{"nonsense": 1}}) // of no parameter's type
			if err := paramsOf(t, d, method, b); !errors.As(err, &e) || e.Status() != http.StatusBadRequest {
				t.Errorf("%s %s is answered %v", method, b, err)
			}
		}
	}
	for _, e := range examples(t, "valid") {
		if method, ok := strings.CutPrefix(e.schema, "ui/methods/"); ok {
			if err := paramsOf(t, d, method, e.body); err != nil {
				t.Errorf("%s: %v", e, err)
			}
		}
	}
	for _, e := range examples(t, "invalid") {
		if method, ok := strings.CutPrefix(e.schema, "ui/methods/"); ok && paramsOf(t, d, method, e.body) == nil {
			t.Errorf("%s: the handlers accept it", e)
		}
	}
}

// positional is the order of a method's parameters when they come as an array, which
// must be all of them.
func positional(t *testing.T, c *contractFiles, n node) (names []string) {
	t.Helper()
	list, ok := n.child("$defs", "positional")
	if !ok {
		t.Fatalf("%s has no $defs/positional", n.doc)
	}
	items, _ := list.m["prefixItems"].([]any)
	for _, v := range items {
		m, _ := v.(map[string]any)
		if either, ok := m["anyOf"].([]any); ok {
			m, _ = either[0].(map[string]any)
		}
		ref, _ := m["$ref"].(string)
		name, _ := strings.CutPrefix(ref, "#/properties/")
		c.lookup(t, n.doc, ref)
		names = append(names, name)
	}
	props, _ := n.child("properties")
	if len(names) != len(props.m) {
		t.Errorf("%s: by place there are %v, by name %d", n.doc, names, len(props.m))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.Compile(n.doc + "#/$defs/positional"); err != nil {
		t.Errorf("%s: %v", n.doc, err)
	}
	return names
}
