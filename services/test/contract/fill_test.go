package contract

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/registrar"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/executor"
	"skandha.dev/services/internal/rights"
)

// filler fills Go values at random, within what the schema says of each field:
// what such a value encodes to must be valid.
type filler struct {
	*testing.T
	c *contractFiles
	r *rand.Rand
}

// texts are the awkward ones; a schema that wants a certain form gives examples.
var texts = []string{"a", "hello", "天気は？🌦", "\x00\t\r\n", "<b>&amp;\u2028", `"\`, "\ufeff\u200b", "…"}

func (f *filler) fill(at string, v reflect.Value, n node) {
	n = f.c.follow(f, n)
	switch {
	case v.Type() == rawType:
		v.SetBytes(f.raw(n))
		return
	case v.Type() == timeType:
		v.Set(reflect.ValueOf(time.UnixMilli(f.r.Int64N(4e12)).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(at, v.Elem(), n)
	case reflect.Struct:
		f.fillStruct(at, v, n)
	case reflect.Slice:
		if v.Type() == bytesType {
			v.SetBytes([]byte(f.pick(texts)))
			return
		}
		f.fillSlice(at, v, n)
	case reflect.Map:
		f.fillMap(at, v)
	case reflect.String:
		v.SetString(f.text(at, n))
	case reflect.Bool:
		v.SetBool(f.r.IntN(2) == 0)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(f.r.Float64())
	case reflect.Uint64:
		v.SetUint(uint64(f.number(n))) // its minimum is not negative
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(f.number(n))
	default:
		f.Fatalf("%s: the filler knows no %s", at, v.Type())
	}
}

func (f *filler) fillStruct(at string, v reflect.Value, n node) {
	props, _ := n.child("properties")
	for _, fd := range fields(v.Type()) {
		p, ok := props.child(fd.name)
		if !ok {
			f.Fatalf("%s: no property %q", at, fd.name)
		}
		if !fd.optional || f.r.IntN(2) == 0 {
			f.fill(at+"."+fd.name, v.FieldByIndex(fd.index), p)
		}
	}
	if fix := consistent[v.Type()]; fix != nil {
		fix(f, v.Addr().Interface())
	}
}

func (f *filler) fillSlice(at string, v reflect.Value, n node) {
	items, _ := n.child("items")
	low, _ := n.int("minItems")
	size := int(low) + f.r.IntN(3)
	v.Set(reflect.MakeSlice(v.Type(), 0, size))
	seen := map[any]bool{}
	for range size {
		e := reflect.New(v.Type().Elem()).Elem()
		f.fill(at+"[]", e, items)
		if n.m["uniqueItems"] == true {
			if seen[e.Interface()] {
				continue
			}
			seen[e.Interface()] = true
		}
		v.Set(reflect.Append(v, e))
	}
}

func (f *filler) fillMap(at string, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	for _, k := range texts[:f.r.IntN(3)] {
		e := reflect.New(v.Type().Elem()).Elem()
		switch e.Kind() {
		case reflect.Int64:
			e.SetInt(f.r.Int64N(1000))
		case reflect.String:
			e.SetString(f.pick(texts))
		case reflect.Interface:
			e.Set(reflect.ValueOf(f.pick(texts)))
		case reflect.Slice: // of texts of a kind, such as rights
			e.Set(reflect.Append(e, reflect.ValueOf("see").Convert(e.Type().Elem())))
		default:
			f.Fatalf("%s: the filler knows no %s", at, v.Type())
		}
		v.SetMapIndex(reflect.ValueOf(k).Convert(v.Type().Key()), e)
	}
}

func (f *filler) pick(s []string) string { return s[f.r.IntN(len(s))] }

func (f *filler) text(at string, n node) string {
	if e := n.strings("enum"); e != nil {
		return f.pick(e)
	}
	if c, ok := n.m["const"].(string); ok {
		return c
	}
	if e := n.strings("examples"); e != nil {
		return f.pick(e)
	}
	if n.m["pattern"] != nil || n.m["format"] != nil {
		f.Fatalf("%s: the schema wants a certain form and gives no examples of it", at)
	}
	s := f.pick(texts)
	if low, ok := n.int("minLength"); !ok || low == 0 {
		return strings.Repeat(s, f.r.IntN(3))
	}
	return s
}

func (f *filler) number(n node) int64 {
	low, _ := n.int("minimum")
	high, ok := n.int("maximum")
	if !ok {
		high = 1 << 53
	}
	switch f.r.IntN(4) {
	case 0:
		return low
	case 1:
		return high
	}
	return low + f.r.Int64N(min(high-low, 1<<20)+1)
}

// raw makes JSON for a field that Go keeps as it came.
func (f *filler) raw(n node) json.RawMessage {
	if e, ok := n.m["examples"].([]any); ok {
		return f.encode(e[f.r.IntN(len(e))])
	}
	if t := n.strings("type"); len(t) > 0 {
		return json.RawMessage(`{}`) // an object whose shape another field decides, see consistent
	}
	return json.RawMessage(f.pick([]string{`null`, `true`, `-0.5e3`, `"\u0000"`, `[]`, `{"a":[{"b":null}]}`}))
}

func (f *filler) encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// value makes a filled value of the type that a schema states.
func (f *filler) value(name string) any {
	typ, ok := goType(name)
	if !ok {
		f.Fatalf("%s has no Go type", name)
	}
	v := reflect.New(typ).Elem()
	f.fill(name, v, f.c.node(f, name))
	return v.Interface()
}

// consistent are the rules between fields, for the types that have some.
var consistent map[reflect.Type]func(*filler, any)

func init() { // its functions fill values, which need it
	consistent = map[reflect.Type]func(*filler, any){
		reflect.TypeFor[tool.Result](): func(f *filler, p any) {
			r := p.(*tool.Result)
			r.Files = withoutData(r.Files)
			if r.Error = nil; !r.Success {
				e := f.value("tool/error").(tool.Error)
				r.Error = &e
			}
		},
		reflect.TypeFor[event.Input](): func(_ *filler, p any) {
			in := p.(*event.Input)
			in.Files = withoutData(in.Files)
		},
		reflect.TypeFor[provider.Message](): func(_ *filler, p any) {
			m := p.(*provider.Message)
			if m.Role != provider.RoleAssistant {
				m.ToolCalls, m.ProviderState = nil, nil
			}
			if m.Role == provider.RoleAssistant {
				m.Files = nil
			}
			if m.Role == provider.RoleTool {
				m.CallID = "call_1"
			} else {
				m.CallID, m.Tool, m.Failed = "", "", false
			}
			if m.Role != provider.RoleUser {
				m.Origin = ""
			}
		},
		reflect.TypeFor[provider.Request](): func(f *filler, p any) {
			r := p.(*provider.Request)
			for i := range r.Messages {
				r.Messages[i] = f.encode(f.value("provider/message"))
			}
		},
		reflect.TypeFor[provider.Call](): func(f *filler, p any) {
			p.(*provider.Call).Request = f.question()
		},
		reflect.TypeFor[provider.Reply](): func(f *filler, p any) {
			r := p.(*provider.Reply)
			r.Response, r.Error = f.outcome()
		},
		reflect.TypeFor[event.PlanCompleted](): func(f *filler, p any) {
			c := p.(*event.PlanCompleted)
			if c.Response, c.Error = f.outcome(); c.Response != nil {
				c.Spent = provider.Usage{}
			}
		},
		reflect.TypeFor[event.Grant](): func(f *filler, p any) {
			g := p.(*event.Grant)
			if g.Args, g.Hash = nil, "9b74c9897bac770ffc029102a200c5de"; f.r.IntN(2) == 0 {
				g.Args, g.Hash = map[string]string{"path": f.pick(texts) + "/*"}, ""
			}
		},
		reflect.TypeFor[event.Audited](): func(_ *filler, p any) {
			a := p.(*event.Audited)
			if a.Action == event.ActionConfirmation {
				a.Effect = event.EffectDeny
			} else {
				a.Resource, a.Call, a.Hash = "python:execute", "t4-p1-c0", "9b74c9897bac770ffc029102a200c5de"
			}
			if a.Effect == event.EffectDeny {
				a.Reason, a.Grant, a.Obligations = "no", nil, nil
			}
		},
		reflect.TypeFor[event.Cancel](): func(_ *filler, p any) {
			if c := p.(*event.Cancel); c.Sequence == 0 {
				c.InputID = "web-1"
			}
		},
		reflect.TypeFor[event.Trigger](): func(_ *filler, p any) {
			t := p.(*event.Trigger)
			n := event.Trigger{Kind: t.Kind}
			switch t.Kind {
			case event.ByCause:
				n.Sequence, n.Cause, n.Writer = 4, subject.Input, "web"
			case event.ByReply:
				n.Call, n.Attempt = "t4-p1-c0", "a1"
			case event.ByPoison:
				n.Sequence = t.Sequence
			case event.ByBegin:
				n.Sequence, n.Core, n.Over = 4, "core-1", t.Over
			}
			*t = n
		},
		reflect.TypeFor[event.Event](): func(f *filler, p any) {
			e := p.(*event.Event)
			e.Data = f.encode(f.value(schemaOf(e.Type)))
		},
		reflect.TypeFor[hook.Envelope](): func(f *filler, p any) {
			e := p.(*hook.Envelope)
			e.Data = f.encode(f.value("hooks/" + string(e.Point)))
			if e.Session = "s1"; e.Point == hook.OnAgentStart || e.Point == hook.OnAgentStop {
				e.Session = ""
			}
		},
		reflect.TypeFor[hook.Reply](): func(f *filler, p any) {
			r := p.(*hook.Reply)
			switch r.Verb {
			case hook.Replace:
				r.Data = f.encode(f.value("hooks/before_act"))
			case hook.AnswerFor:
				r.Data = json.RawMessage(`[1]`)
			case hook.DenyVerb:
				r.Reason = "no"
			case hook.Confirm:
				r.Warning = &hook.Warning{Level: hook.LevelWarn, Message: "really?"}
			}
		},
		reflect.TypeFor[executor.Request](): func(f *filler, p any) {
			r := p.(*executor.Request)
			r.StartBy, r.NotAfter, r.Tool, r.Model, r.Provider, r.Silent = time.Time{}, time.Time{}, nil, nil, "", false
			if r.Op != executor.OpRun {
				return
			}
			r.StartBy, r.NotAfter = time.UnixMilli(1795249800000).UTC(), time.UnixMilli(1795249860000).UTC()
			if f.r.IntN(2) == 0 {
				r.Call, r.Tool = "t4-p1-c0", &executor.ToolCall{Name: "python:execute", Args: json.RawMessage(`{}`), Turn: "t4"}
				return
			}
			m := f.question()
			r.Call, r.Model, r.Provider = "t4-p1", &m, "openai"
		},
		reflect.TypeFor[executor.Answer](): func(f *filler, p any) {
			a := p.(*executor.Answer)
			a.Result, a.Response, a.Error = nil, nil, nil
			defer func() {
				if a.Error == nil {
					a.Spent = provider.Usage{}
				}
			}()
			if a.State == executor.Finished {
				if a.Response, a.Error = f.outcome(); f.r.IntN(2) == 0 {
					r := f.value("tool/result").(tool.Result)
					a.Result, a.Response, a.Error = &r, nil, nil
				}
			} else if a.State != executor.Stopped {
				a.DurationMS = 0
			}
			if a.State != executor.Running {
				a.Progress = ""
			}
			if a.State == executor.Refused {
				a.Reason = executor.RefusedFull
			} else if a.State != executor.Never {
				a.Reason = ""
			}
		},
		reflect.TypeFor[executor.Announcement](): func(_ *filler, p any) {
			a := p.(*executor.Announcement)
			if a.Kind == subject.Runner {
				a.Providers = nil
			} else {
				a.Tools, a.Project = nil, nil
			}
		},
		reflect.TypeFor[coreapi.Fault](): func(_ *filler, p any) {
			p.(*coreapi.Fault).What = coreapi.FaultView
		},
		reflect.TypeFor[plugin.Lease](): func(_ *filler, p any) {
			if l := p.(*plugin.Lease); l.State == plugin.Waiting || l.State == plugin.Suspended {
				l.Reason = "plugin geo is not registered"
			}
		},
		reflect.TypeFor[plugin.Hook](): func(_ *filler, p any) {
			if h := p.(*plugin.Hook); !h.Point.Deniable() {
				h.OnError = ""
			}
		},
		reflect.TypeFor[registrar.PluginInfo](): func(_ *filler, p any) {
			i := p.(*registrar.PluginInfo)
			for k := range i.Tools {
				i.Tools[k].Plugin = ""
			}
			if i.State == plugin.Waiting || i.State == plugin.Suspended {
				i.Reason = "plugin geo is not registered"
			}
		},
		reflect.TypeFor[plugin.Manifest](): func(_ *filler, p any) {
			for i := range p.(*plugin.Manifest).Tools {
				p.(*plugin.Manifest).Tools[i].Plugin = ""
			}
		},
		reflect.TypeFor[coreapi.MemoryQuery]():     consistentMemoryQuery,
		reflect.TypeFor[coreapi.Schedule]():        oneKindOfSchedule,
		reflect.TypeFor[coreapi.SchedulesQuery]():  namedSchedule,
		reflect.TypeFor[coreapi.IdentitiesQuery](): completeIdentitiesQuery,
		reflect.TypeFor[coreapi.AuditQuery]():      func(_ *filler, p any) { p.(*coreapi.AuditQuery).From = 0 },
		reflect.TypeFor[coreapi.Credential]():      oneCredential,
		reflect.TypeFor[rights.Charter]():          grammaticalCharter,
	}
	maps.Copy(consistent, consistentUI)
	maps.Copy(consistent, consistentStorage())
}

// question is a model request with at least one message.
func (f *filler) question() provider.Request {
	r := f.value("provider/request").(provider.Request)
	r.Messages = append(r.Messages, f.encode(f.value("provider/message")))
	return r
}

// outcome is a response or an error.
func (f *filler) outcome() (*provider.Response, *provider.Error) {
	if f.r.IntN(2) == 0 {
		r := f.value("provider/response").(provider.Response)
		return &r, nil
	}
	e := f.value("provider/error").(provider.Error)
	return nil, &e
}

// What Go writes is valid, whatever is in it, and reads back as the same.
func TestWhatGoWritesIsValid(t *testing.T) {
	c := files(t)
	for name := range goTypes {
		t.Run(name, func(t *testing.T) {
			schema := c.schema(t, name)
			for seed := range uint64(100) {
				f := &filler{T: t, c: c, r: rand.New(rand.NewPCG(seed, 0))} // repeatable on purpose
				v := f.value(name)
				b := f.encode(v)
				if err := schema.Validate(decode(t, b)); err != nil {
					t.Fatalf("seed %d: %s\n%v", seed, b, err)
				}
				typ, _ := goType(name)
				again := reflect.New(typ)
				if err := json.Unmarshal(b, again.Interface()); err != nil {
					t.Fatalf("seed %d: %s\n%v", seed, b, err)
				}
				if b2 := f.encode(again.Interface()); string(b2) != string(b) {
					t.Fatalf("seed %d:\n%s\nreads back as\n%s", seed, b, b2)
				}
			}
		})
	}
}

// So are whole commits, through the encoder that core uses.
func TestCommitsThatGoWritesAreValid(t *testing.T) {
	c := files(t)
	schema := c.schema(t, "events/commit")
	ref := subject.Ref{Agent: "demo", Session: "s1"}
	for seed := range uint64(100) {
		f := &filler{T: t, c: c, r: rand.New(rand.NewPCG(seed, 1))} // repeatable on purpose
		commit := event.Commit{Ref: ref, Header: f.value("events/commit.v1").(event.Header)}
		for _, typ := range event.CommitTypes() {
			e := event.New(ref, "c1."+string(typ), event.Source, f.value(schemaOf(typ)).(event.Payload))
			e.Time, e.Turn, e.Cause = commit.Header.Now, "t4", "4"
			commit.Events = append(commit.Events, e)
		}
		b, err := commit.Encode()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := schema.Validate(decode(t, b)); err != nil {
			t.Fatalf("seed %d: %s\n%v", seed, b, err)
		}
		got, err := event.DecodeCommit(ref, b)
		if err != nil {
			t.Fatalf("seed %d: %s\n%v", seed, b, err)
		}
		if b2, err := got.Encode(); err != nil || string(b2) != string(b) {
			t.Fatalf("seed %d: %v\n%s\nreads back as\n%s", seed, err, b, b2)
		}
	}
}

// withoutData removes what only requests to providers carry.
func withoutData(files []provider.File) []provider.File {
	for i := range files {
		files[i].Data = nil
	}
	return files
}

// consistentMemoryQuery leaves what the operation takes.
func consistentMemoryQuery(_ *filler, p any) {
	q := p.(*coreapi.MemoryQuery)
	n := coreapi.MemoryQuery{Op: q.Op, Agent: q.Agent, Caller: q.Caller}
	switch q.Op {
	case coreapi.MemoryList:
		n.Kinds, n.Limit, n.After = q.Kinds, q.Limit, q.After
	case coreapi.MemorySearch:
		n.Text, n.Kinds, n.Limit = "tea", q.Kinds, q.Limit
	case coreapi.MemoryStore:
		n.Text, n.ID, n.Kind, n.Pinned, n.Source = "tea", q.ID, q.Kind, q.Pinned, q.Source
	case coreapi.MemoryCorrect:
		n.ID, n.Text, n.Pinned = "m-1", "tea", q.Pinned
	default:
		n.ID = "m-1"
	}
	*q = n
}
