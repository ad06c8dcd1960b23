package hook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
)

// payload is a payload of each point; changed is the same after a plugin has
// changed what may be changed there.
var payload = map[hook.Point]struct{ data, changed string }{
	hook.OnAgentStart: {`{"instance":"i"}`, `{"instance":"i","reason":"x"}`},
	hook.BeforeSense:  {`{"text":"hi","writer":"w"}`, `{"text":"HI","writer":"w"}`},
	hook.AfterSense: {
		`{"perceptions":[{"id":"7","text":"hi"}]}`,
		`{"perceptions":[{"id":"7","text":"hi","drop":true,"annotations":["x"]}]}`,
	},
	hook.BeforePlan: {
		`{"plan":"p","round":1,"tools":["a","b"]}`, `{"plan":"p","round":1,"system":"s","tools":["a"],"advice":["x"]}`,
	},
	hook.AfterPlan: {
		`{"plan":"p","response":{"is_final":true,"text_content":"a","usage":{"input_tokens":1,"output_tokens":1}}}`,
		`{"plan":"p","response":{"is_final":true,"text_content":"b","usage":{"input_tokens":1,"output_tokens":1}}}`,
	},
	hook.BeforeAct: {`{"call":"c","tool":"t","args":{"n":1}}`, `{"call":"c","tool":"t","args":{"n":2}}`},
	hook.AfterAct: {
		`{"call":"c","tool":"t","args":{"n":1},"result":{"success":true,"data":1}}`,
		`{"call":"c","tool":"t","args":{"n":1},"result":{"success":true,"data":2}}`,
	},
	hook.BeforeReflect: {`{"input":"i","rounds":1}`, `{"input":"i","rounds":1,"notes":["x"]}`},
	hook.AfterReflect:  {`{"input":"i","rounds":1}`, `{"input":"i","rounds":1,"notes":["x"]}`},
	hook.OnError:       {`{"code":"c","message":"m"}`, `{"code":"c","message":"n"}`},
	hook.OnAgentStop:   {`{"instance":"i"}`, `{"instance":"i","reason":"x"}`},
}

func fold(p hook.Point, answers ...hook.Answer) hook.Decision {
	f := hook.NewFold(p, "", json.RawMessage(payload[p].data))
	f.Add(answers...)
	return f.Decision()
}

func says(body string) hook.Answer {
	return hook.Answer{Plugin: "p", Body: []byte(body), OnError: hook.Allow, Latency: 5 * time.Microsecond}
}

// Every verb, and everything that is none, at every point, under both rules.
func TestWhatAReplyDoesAtEachPoint(t *testing.T) {
	everywhere := hook.Points()
	deniable := []hook.Point{
		hook.BeforeSense, hook.AfterSense, hook.BeforePlan, hook.AfterPlan, hook.BeforeAct, hook.AfterAct,
	}
	only := []hook.Point{hook.BeforeAct}
	for _, c := range []struct {
		name   string
		answer hook.Answer // "CHANGED" in its body is the point's changed payload
		at     []hook.Point
		want   hook.Verb // at these points; elsewhere it is a failure
	}{
		{"nothing", says(``), everywhere, hook.Continue},
		{"blank", says("\r\n "), everywhere, hook.Continue},
		{"continue", says(`{"verb":"continue"}`), everywhere, hook.Continue},
		{"stop", says(`{"verb":"stop"}`), everywhere, hook.Continue},
		{
			"replace", says(`{"verb":"replace","data":CHANGED}`),
			append(deniable[:len(deniable):len(deniable)], hook.BeforeReflect), hook.Replace,
		},
		{"deny", says(`{"verb":"deny","reason":"no"}`), deniable, hook.DenyVerb},
		{"deny without a reason", says(`{"verb":"deny"}`), deniable, hook.DenyVerb},
		{"deny with a wrong reason", says(`{"verb":"deny","reason":7}`), deniable, hook.DenyVerb},
		{"deny with more than there is", says(`{"verb":"deny","why":"no"}`), deniable, hook.DenyVerb},
		{"confirm", says(`{"verb":"confirm","warning":{"level":"critical","message":"sure?"}}`), only, hook.Confirm},
		{"confirm without a warning", says(`{"verb":"confirm"}`), only, hook.Confirm},
		{"answer", says(`{"verb":"answer","data":{"cached":true}}`), only, hook.AnswerFor},
		{"answer null", says(`{"verb":"answer","data":null}`), only, hook.AnswerFor},

		{"replace without data", says(`{"verb":"replace"}`), nil, ""},
		{"replace by a list", says(`{"verb":"replace","data":[]}`), nil, ""},
		{"replace by a stranger", says(`{"verb":"replace","data":{"strange":1}}`), nil, ""},
		{"answer without data", says(`{"verb":"answer"}`), nil, ""},
		{"an unknown verb", says(`{"verb":"shrug"}`), nil, ""},
		{"a verb in another case", says(`{"Verb":"continue"}`), nil, ""},
		{"no verb", says(`{}`), nil, ""},
		{"more than there is", says(`{"verb":"continue","extra":1}`), nil, ""},
		{"null", says(`null`), nil, ""},
		{"a list", says(`["deny"]`), nil, ""},
		{"cut off", says(`{"verb":"deny"`), nil, ""},
		{"two objects", says(`{"verb":"continue"}{}`), nil, ""},
		{"text", says(`ok`), nil, ""},
		{"no UTF-8", says("\xff\xfe"), nil, ""},
		{"too much", says(`{"verb":"continue","reason":"` + strings.Repeat("x", hook.MaxReply) + `"}`), nil, ""},
		{"no answer", hook.Answer{Plugin: "p", Err: errors.New("no answer within 2s")}, nil, ""},
	} {
		for _, p := range everywhere {
			for _, rule := range []hook.OnErrorRule{hook.Allow, hook.Deny} {
				a := c.answer
				a.OnError, a.Body = rule, []byte(strings.ReplaceAll(string(a.Body), "CHANGED", payload[p].changed))
				want, fails := hook.Continue, true
				for _, at := range c.at {
					if at == p {
						want, fails = c.want, false
					}
				}
				if fails && rule == hook.Deny && p.Deniable() {
					want = hook.DenyVerb
				}
				d := fold(p, a)
				if len(d.Verdicts) != 1 {
					t.Fatalf("%s at %s: %d verdicts", c.name, p, len(d.Verdicts))
				}
				v := d.Verdicts[0]
				if d.Verb != want || (v.Error != "") != fails || v.Plugin != "p" || v.Point != p {
					t.Errorf("%s at %s, on_error %s: %s, %+v; want %s, failure %v", c.name, p, rule, d.Verb, v, want, fails)
				}
				if d.Verb == hook.DenyVerb && d.Reason == "" ||
					d.Verb == hook.Confirm && (d.Warning == nil || d.Warning.Message == "") {
					t.Errorf("%s at %s: no reason is given: %+v", c.name, p, d)
				}
				if d.Verb == hook.Replace && string(d.Data) != payload[p].changed {
					t.Errorf("%s at %s: %s, want %s", c.name, p, d.Data, payload[p].changed)
				}
			}
		}
	}
}

// What a reply may not change stays as it is.
func TestWhatAReplaceCannotDo(t *testing.T) {
	for _, c := range []struct {
		name  string
		point hook.Point
		data  string
		want  string // "": refused
	}{
		{
			"say that another has spoken", hook.BeforeSense, `{"text":"x","writer":"root","source":"me"}`,
			`{"text":"x","writer":"w"}`,
		},
		{"say nothing", hook.BeforeSense, `{"text":"","writer":"w"}`, ""},
		{
			"rewrite a perception", hook.AfterSense, `{"perceptions":[{"id":"7","text":"evil"}]}`, payload[hook.AfterSense].data,
		},
		{"invent a perception", hook.AfterSense, `{"perceptions":[{"id":"8","text":"hi"}]}`, ""},
		{"leave a perception out", hook.AfterSense, `{"perceptions":[]}`, payload[hook.AfterSense].data},
		{
			"offer more tools", hook.BeforePlan, `{"plan":"p","round":1,"tools":["a","b","root"]}`,
			payload[hook.BeforePlan].data,
		},
		{"name tools alone", hook.BeforePlan, `{"tools":["b"]}`, `{"plan":"p","round":1,"tools":["b"]}`},
		{"change the round", hook.BeforePlan, `{"plan":"q","round":9,"tools":["a","b"]}`, payload[hook.BeforePlan].data},
		{
			"change what the model cost", hook.AfterPlan,
			`{"plan":"p","response":{"is_final":false,"text_content":"a","usage":{"input_tokens":0,"output_tokens":0}}}`,
			payload[hook.AfterPlan].data,
		},
		{"name no response", hook.AfterPlan, `{"plan":"p"}`, ""},
		{
			"call nothing", hook.AfterPlan,
			`{"plan":"p","response":{"is_final":false,"tool_calls":[{"id":"1","tool":"","args":{}}],"usage":{"input_tokens":1,"output_tokens":1}}}`, "",
		},
		{
			"say and call nothing", hook.AfterPlan,
			`{"plan":"p","response":{"is_final":true,"usage":{"input_tokens":1,"output_tokens":1}}}`, "",
		},
		{
			"call more than is read", hook.AfterPlan,
			`{"plan":"p","response":{"tool_calls":[{"id":"1","tool":"t","args":{"a":"` +
				strings.Repeat("a", provider.MaxCallsBytes) + `"}}],"usage":{"input_tokens":1,"output_tokens":1}}}`, "",
		},
		{"call another tool", hook.BeforeAct, `{"call":"c","tool":"rm","args":{"n":2}}`, ""},
		{"name no tool", hook.BeforeAct, `{"call":"d","args":{"n":2}}`, `{"call":"c","tool":"t","args":{"n":2}}`},
		{"give no arguments", hook.BeforeAct, `{"call":"c","tool":"t"}`, ""},
		{"give arguments that are none", hook.BeforeAct, `{"call":"c","tool":"t","args":[1]}`, ""},
		{
			"change what was asked", hook.AfterAct, `{"call":"c","tool":"t","args":{"n":9},"result":{"success":true,"data":2}}`,
			`{"call":"c","tool":"t","args":{"n":1},"result":{"success":true,"data":2}}`,
		},
		{"give no result", hook.AfterAct, `{"call":"c","tool":"t","args":{"n":1}}`, ""},
		{
			"change what happened", hook.BeforeReflect, `{"input":"other","answer":"a","rounds":7,"notes":["x"]}`,
			`{"input":"i","rounds":1,"notes":["x"]}`,
		},
	} {
		d := fold(c.point, says(`{"verb":"replace","data":`+c.data+`}`))
		switch {
		case c.want == "" && (d.Verb != hook.Continue || d.Verdicts[0].Error == ""):
			t.Errorf("%s at %s is taken: %+v", c.name, c.point, d)
		case c.want != "" && string(d.Data) != c.want:
			t.Errorf("%s at %s: %s, want %s (%s)", c.name, c.point, d.Data, c.want, d.Verdicts[0].Error)
		}
	}
}

// by is an answer that replaces.
func by(p subject.Plugin, data string) hook.Answer {
	return hook.Answer{Plugin: p, Body: []byte(`{"verb":"replace","data":` + data + `}`)}
}

// Plugins that were asked together do not undo each other's changes.
func TestParallelReplacementsAreComposed(t *testing.T) {
	for _, c := range []struct {
		point      hook.Point
		base, a, b string
		want       string
	}{
		{
			hook.BeforePlan, `{"plan":"p","round":1,"tools":["a","b","c"],"advice":["old"]}`,
			`{"plan":"p","round":1,"tools":["a","b"],"advice":["old","one"]}`,
			`{"plan":"p","round":1,"system":"s","tools":["b","c"],"advice":["two"]}`,
			`{"plan":"p","round":1,"system":"s","tools":["b"],"advice":["one","two"]}`,
		},
		{
			hook.BeforeAct, `{"call":"c","tool":"t","args":{"x":1,"y":1,"z":1}}`,
			`{"call":"c","tool":"t","args":{"x":2,"y":1,"z":1}}`, `{"call":"c","tool":"t","args":{"x":1,"y":3,"new":1}}`,
			`{"call":"c","tool":"t","args":{"new":1,"x":2,"y":3}}`,
		},
		{
			hook.BeforeAct, `{"call":"c","tool":"t","args":{"x":1}}`,
			`{"call":"c","tool":"t","args":{"x":2}}`, `{"call":"c","tool":"t","args":{"x":3}}`,
			`{"call":"c","tool":"t","args":{"x":3}}`,
		}, // the later of the order wins
		{
			hook.AfterSense, `{"perceptions":[{"id":"1","text":"x"},{"id":"2","text":"y"}]}`,
			`{"perceptions":[{"id":"1","text":"x","drop":true},{"id":"2","text":"y","annotations":["a"]}]}`,
			`{"perceptions":[{"id":"2","text":"y","annotations":["b"]},{"id":"1","text":"x"}]}`,
			`{"perceptions":[{"id":"1","text":"x","drop":true},{"id":"2","text":"y","annotations":["a","b"]}]}`,
		},
		{
			hook.AfterAct, `{"call":"c","tool":"t","args":{},"result":{"success":true,"data":1}}`,
			`{"call":"c","tool":"t","args":{},"result":{"success":true,"data":2}}`,
			`{"call":"c","tool":"t","args":{},"result":{"success":true,"data":1}}`,
			`{"call":"c","tool":"t","args":{},"result":{"success":true,"data":2}}`,
		},
		{
			hook.BeforeReflect, `{"input":"i","rounds":1}`, `{"input":"i","rounds":1,"notes":["x"]}`,
			`{"input":"i","rounds":1,"notes":["x","y"]}`,
			`{"input":"i","rounds":1,"notes":["x","y"]}`,
		},
	} {
		f := hook.NewFold(c.point, "", json.RawMessage(c.base))
		if failed := f.Add(by("a", c.a), by("b", c.b)); failed != nil {
			t.Errorf("%s: %v", c.point, failed)
		}
		if got := string(f.Decision().Data); got != c.want {
			t.Errorf("%s: %s, want %s", c.point, got, c.want)
		}
	}
}

// What goes before what, when several say different things.
func TestPrecedence(t *testing.T) {
	deny, answer := says(`{"verb":"deny","reason":"no"}`), says(`{"verb":"answer","data":7}`)
	info := says(`{"verb":"confirm","warning":{"level":"info","message":"look"}}`)
	critical := says(`{"verb":"confirm","warning":{"level":"critical","message":"danger"}}`)
	replace, stop := says(`{"verb":"replace","data":`+payload[hook.BeforeAct].changed+`}`), says(`{"verb":"stop"}`)
	for _, c := range []struct {
		name    string
		answers []hook.Answer
		want    hook.Verb
		data    string
	}{
		{"a denial wins", []hook.Answer{replace, info, answer, deny}, hook.DenyVerb, ""},
		{"an answer before a confirmation", []hook.Answer{info, answer}, hook.AnswerFor, "7"},
		{
			"a confirmation keeps what was replaced",
			[]hook.Answer{replace, info, critical},
			hook.Confirm,
			payload[hook.BeforeAct].changed,
		},
		{"stop keeps what was replaced", []hook.Answer{replace, stop}, hook.Replace, payload[hook.BeforeAct].changed},
		{"nothing", nil, hook.Continue, ""},
	} {
		together := fold(hook.BeforeAct, c.answers...)
		f := hook.NewFold(hook.BeforeAct, "", json.RawMessage(payload[hook.BeforeAct].data))
		for _, a := range c.answers {
			f.Add(a)
		}
		for how, d := range map[string]hook.Decision{"together": together, "in a chain": f.Decision()} {
			data := d.Data
			if d.Verb == hook.AnswerFor {
				data = d.Answer
			}
			if d.Verb != c.want || string(data) != c.data {
				t.Errorf("%s, %s: %+v", c.name, how, d)
			}
			if d.Verb == hook.Confirm &&
				(d.Warning.Level != hook.LevelCritical || !strings.Contains(d.Warning.Message, "look") ||
					!strings.Contains(d.Warning.Message, "danger")) {
				t.Errorf("%s, %s: %+v", c.name, how, d.Warning)
			}
		}
	}
}

func TestAChainIsOverWhenThereIsNothingToAsk(t *testing.T) {
	for body, over := range map[string]bool{
		``: false, `{"verb":"continue"}`: false, `{"verb":"replace","data":` + payload[hook.BeforeAct].changed + `}`: false,
		`{"verb":"confirm"}`: false, // a later policy may deny
		`{"verb":"stop"}`:    true, `{"verb":"deny"}`: true, `{"verb":"answer","data":1}`: true,
	} {
		f := hook.NewFold(hook.BeforeAct, "", json.RawMessage(payload[hook.BeforeAct].data))
		if f.Add(says(body)); f.Over() != over {
			t.Errorf("after %s: over is %v", body, f.Over())
		}
	}
}

// A judgement changes nothing: a judge that tries has failed, and a plugin that shapes
// the call again has a person asked.
func TestJudgement(t *testing.T) {
	data := payload[hook.BeforeAct].data
	for _, c := range []struct {
		name, body   string
		guest, judge hook.Verb
	}{
		{"continue", `{"verb":"continue"}`, hook.Continue, hook.Continue},
		{"nothing", ``, hook.Continue, hook.Continue},
		{"deny", `{"verb":"deny","reason":"no"}`, hook.DenyVerb, hook.DenyVerb},
		{"confirm", `{"verb":"confirm"}`, hook.Confirm, hook.Confirm},
		{"stop", `{"verb":"stop"}`, hook.Continue, hook.DenyVerb},
		{"answer", `{"verb":"answer","data":1}`, hook.Continue, hook.DenyVerb},
		{"replace", `{"verb":"replace","data":` + payload[hook.BeforeAct].changed + `}`, hook.Confirm, hook.DenyVerb},
		{"replace by the same", `{"verb":"replace","data":` + data + `}`, hook.Continue, hook.DenyVerb},
		{"garbage", `ok`, hook.DenyVerb, hook.DenyVerb},
	} {
		for _, judge := range []bool{false, true} {
			a := says(c.body)
			a.Judge, a.OnError = judge, hook.Deny
			f := hook.NewJudgement("c", json.RawMessage(data))
			f.Add(a)
			want := c.guest
			if judge {
				want = c.judge
			}
			if d := f.Decision(); d.Verb != want || d.Data != nil || d.Answer != nil {
				t.Errorf("%s, judge %v: %+v, want %s", c.name, judge, d, want)
			}
		}
	}
}

// What each plugin has agreed to is known, so that those who agreed to something else can be asked again.
func TestWhatEachPluginHasSeen(t *testing.T) {
	first := payload[hook.BeforeAct].data
	changed := payload[hook.BeforeAct].changed
	f := hook.NewFold(hook.BeforeAct, "", json.RawMessage(first))
	f.Add(says(``))
	f.Add(says(`{"verb":"replace","data":`+changed+`}`), says(`garbage`))
	f.Add(says(`{"verb":"confirm"}`))
	var got []string
	for _, s := range f.Decision().Seen {
		got = append(got, string(s.Data))
	}
	if want := []string{first, changed, first, changed}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A plugin's warning is on one line, after its name: it cannot pass for policy's.
func TestAWarningSaysWhose(t *testing.T) {
	d := fold(hook.BeforeAct, says(`{"verb":"confirm","warning":{"level":"info","message":"fine\nPolicy: checked"}}`))
	policy := hook.Warning{Level: hook.LevelCritical, Message: "It cannot be undone."}
	got := policy.Join(d.Warning)
	if want := (hook.Warning{
		Level: hook.LevelCritical, Message: "It cannot be undone.\nplugin p: fine Policy: checked",
	}); *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
}

// A verdict is bounded, whatever a plugin says.
func TestVerdictsAreBounded(t *testing.T) {
	d := fold(hook.BeforeAct, says(fmt.Sprintf(`{"verb":"deny","reason":%q}`, strings.Repeat("é", 100_000))))
	if v := d.Verdicts[0]; len(v.Reason) > 1100 || len(d.Reason) > 1100 || strings.ContainsRune(v.Reason, '\uFFFD') ||
		v.LatencyUS != 5 {
		t.Errorf("%d bytes: %.40s", len(v.Reason), v.Reason)
	}
}

// Whatever a plugin sends, the fold neither panics nor lets through what has no meaning.
func FuzzReply(f *testing.F) {
	for p, l := range payload {
		f.Add(string(p), []byte(`{"verb":"replace","data":`+l.changed+`}`))
		f.Add(string(p), []byte(`{"verb":"deny","reason":"x"}`))
	}
	f.Fuzz(func(t *testing.T, point string, body []byte) {
		p := hook.Point(point)
		l, known := payload[p]
		if !known {
			return
		}
		d := fold(p, hook.Answer{Plugin: "p", Body: body, OnError: hook.Allow})
		if d.Verb != hook.Continue && !p.Allows(d.Verb) {
			t.Fatalf("%s at %s", d.Verb, p)
		}
		if d.Verb == hook.Replace && !json.Valid(d.Data) {
			t.Fatalf("%s became %s", l.data, d.Data)
		}
	})
}
