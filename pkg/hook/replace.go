package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"skandha.dev/pkg/memory"
	"skandha.dev/pkg/strictjson"
)

// replace applies what a reply may change of the payload. The plugin was asked with base.
// Others that were asked with the same data may have changed the payload since: only what
// differs from base is applied to it.
func (f *Fold) replace(base, data json.RawMessage) error {
	next, err := merge(f.point, base, f.data, data)
	if err == nil && f.fits != nil {
		next, err = f.fitted(next)
	}
	if err != nil {
		return err
	}
	f.data, f.replaced = next, true
	return nil
}

// fitted checks the arguments of a call that a plugin has changed.
func (f *Fold) fitted(data json.RawMessage) (json.RawMessage, error) {
	var act ActData
	if err := json.Unmarshal(data, &act); err != nil {
		return nil, err
	}
	var err error
	if act.Args, err = f.fits(act.Args); err != nil {
		return nil, fmt.Errorf("invalid reply: data: args: %w", err)
	}
	return json.Marshal(act)
}

func merge(p Point, base, now, reply json.RawMessage) (json.RawMessage, error) {
	switch p {
	case BeforeSense:
		return merged(base, now, reply, func(base, now, r *SenseData, _ given) error {
			if r.Text == "" {
				return errors.New("text is empty; to drop an input, reply deny")
			}
			change(&now.Text, base.Text, r.Text)
			return nil
		})
	case AfterSense:
		return merged(base, now, reply, mergePerceptions)
	case BeforePlan:
		return merged(base, now, reply, func(base, now, r *PlanData, is given) error {
			if is["system"] {
				change(&now.System, base.System, r.System)
			}
			if is["tools"] {
				now.Tools = slices.DeleteFunc(now.Tools, func(t string) bool {
					return slices.Contains(base.Tools, t) && !slices.Contains(r.Tools, t)
				})
			}
			if is["advice"] {
				now.Advice = added(base.Advice, now.Advice, r.Advice)
			}
			if is["memories"] {
				now.Memories = slices.DeleteFunc(now.Memories, func(m memory.Hit) bool {
					return named(base.Memories, m.ID) && !named(r.Memories, m.ID)
				})
			}
			return nil
		})
	case AfterPlan:
		return merged(base, now, reply, mergeResponse)
	case BeforeAct:
		return merged(base, now, reply, func(base, now, r *ActData, _ given) error {
			if a := bytes.TrimSpace(r.Args); len(a) == 0 || a[0] != '{' {
				return errors.New("args is not an object")
			}
			if err := sameTool(base.Tool, r.Tool); err != nil {
				return err
			}
			return changeArgs(base, now, r)
		})
	case AfterAct:
		return merged(base, now, reply, func(base, now, r *AfterActData, is given) error {
			if !is["result"] {
				return errors.New("result is missing")
			}
			if !sameJSON(base.Result, r.Result) {
				now.Result = r.Result
			}
			return nil
		})
	case BeforeReflect:
		return merged(base, now, reply, func(base, now, r *ReflectData, is given) error {
			if is["notes"] {
				now.Notes = added(base.Notes, now.Notes, r.Notes)
			}
			return nil
		})
	}
	return nil, fmt.Errorf("replace is not valid at %s", p)
}

// named reports whether a memory with that id is among the hits.
func named(hits []memory.Hit, id string) bool {
	return slices.ContainsFunc(hits, func(m memory.Hit) bool { return m.ID == id })
}

// sameTool rejects a reply that names another tool. It may leave out the name.
func sameTool(asked, replied string) error {
	if replied != "" && replied != asked {
		return fmt.Errorf("tool is %q, want %q: a reply cannot change it", clip(replied, 80), asked)
	}
	return nil
}

// given are the fields that a reply contains. Other fields are not changed.
type given map[string]bool

// merged decodes all three as the point's payload, calls f, and returns now, encoded again.
func merged[T any](
	base, now, reply json.RawMessage, f func(base, now, reply *T, is given) error,
) (json.RawMessage, error) {
	var b, n, r T
	if err := errors.Join(json.Unmarshal(base, &b), json.Unmarshal(now, &n)); err != nil {
		return nil, fmt.Errorf("decoding the payload: %w", err)
	}
	if err := strict(reply, &r); err != nil {
		return nil, fmt.Errorf("invalid reply: data: %w", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(reply, &fields); err != nil {
		return nil, fmt.Errorf("invalid reply: data: %w", err)
	}
	is := make(given, len(fields))
	for name := range fields {
		is[name] = true
	}
	if err := f(&b, &n, &r, is); err != nil {
		return nil, fmt.Errorf("invalid reply: data: %w", err)
	}
	return json.Marshal(n)
}

func strict(data json.RawMessage, to any) error {
	if err := strictjson.Names(data, to); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the object")
	}
	return nil
}

func change[T comparable](now *T, base, reply T) {
	if reply != base {
		*now = reply
	}
}

func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// added applies the difference between base and reply to now: it removes what the plugin
// removed, and appends what the plugin added.
func added(base, now, reply []string) []string {
	out := slices.DeleteFunc(slices.Clone(now), func(s string) bool {
		return slices.Contains(base, s) && !slices.Contains(reply, s)
	})
	for _, s := range reply {
		if !slices.Contains(base, s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// mergePerceptions applies drops and annotations, and nothing else. A drop is never undone.
func mergePerceptions(base, now, r *PerceptionsData, _ given) error {
	for _, by := range r.Perceptions {
		at := func(list []Perception) int {
			return slices.IndexFunc(list, func(p Perception) bool { return p.ID == by.ID })
		}
		i, j := at(base.Perceptions), at(now.Perceptions)
		if i < 0 || j < 0 {
			return fmt.Errorf("perceptions: unknown id %q", clip(by.ID, 80))
		}
		n := &now.Perceptions[j]
		n.Drop = n.Drop || by.Drop
		n.Annotations = added(base.Perceptions[i].Annotations, n.Annotations, by.Annotations)
	}
	return nil
}

func mergeResponse(base, now, r *AfterPlanData, is given) error {
	if !is["response"] {
		return errors.New("response is missing")
	}
	change(&now.Response.TextContent, base.Response.TextContent, r.Response.TextContent)
	if !sameJSON(base.Response.ToolCalls, r.Response.ToolCalls) {
		now.Response.ToolCalls = r.Response.ToolCalls
	}
	for i, c := range now.Response.ToolCalls {
		if c.Tool == "" {
			return fmt.Errorf("response.tool_calls[%d].tool is empty", i)
		}
	}
	now.Response.IsFinal = len(now.Response.ToolCalls) == 0
	if base.Response.Usable() == nil { // else the model caused it
		if err := now.Response.Usable(); err != nil {
			return fmt.Errorf("response %w", err)
		}
	}
	return nil
}

// changeArgs changes argument by argument, so that each of two plugins that were asked in
// parallel can change one.
func changeArgs(base, now, r *ActData) error {
	var b, n, by map[string]json.RawMessage
	if err := json.Unmarshal(r.Args, &by); err != nil {
		return err
	}
	before, current := json.Unmarshal(base.Args, &b), json.Unmarshal(now.Args, &n)
	if objects := before == nil && current == nil && b != nil && n != nil; !objects {
		now.Args = r.Args // not an object: replace it as a whole
		return nil
	}
	for name, v := range by {
		if old, had := b[name]; !had || !sameJSON(old, v) {
			n[name] = v
		}
	}
	for name := range b {
		if _, kept := by[name]; !kept {
			delete(n, name)
		}
	}
	args, err := json.Marshal(n)
	now.Args = args
	return err
}
