package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner/engine"
)

var (
	_ engine.Classifier = engine.Rules{}
	_ engine.Classifier = engine.Answer{}
	_ engine.Recognizer = engine.Rules{}
	_ engine.Recognizer = engine.Answer{}
	_ engine.Extractor  = engine.Rules{}
	_ engine.Extractor  = engine.Answer{}
)

func TestScenarios(t *testing.T) {
	for text, want := range map[string]string{
		"Send a mail to ann@example.org":      "communication",
		"search the web for cats":             "information_retrieval",
		"SEARCH":                              "information_retrieval",
		"open the file a.txt":                 "file_management",
		"calculate the average":               "data_analysis",
		"write a poem":                        "creative_work",
		"remind me: run the job":              "task_execution",
		"请发送邮件给王先生":                           "communication",
		"請搜尋最新的新聞":                            "information_retrieval",
		"ファイルを削除してください":                       "file_management",
		"メールを送信して":                            "communication",
		"hello there":                         "",
		"":                                    "",
		"the researcher finds nothing openly": "", // not "search", "find" and "open"
		"search the file":                     "", // equally two
	} {
		if got := (engine.Rules{}).Scenario(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestIntents(t *testing.T) {
	for text, want := range map[string][]string{
		"read a.txt":                      {"read/a.txt/read a.txt"},
		"read a.txt, then send it to Ann": {"read/a.txt/read a.txt", "send/it to Ann/send it to Ann"},
		"Fetch x; save it":                {"fetch/x/Fetch x", "save/it/save it"},
		`send "first this, then that"`:    {`send/"first this, then that"/send "first this, then that"`},
		"读取文件，然后发送邮件":                     {"读取/文件/读取文件", "发送/邮件/发送邮件"},
		"ファイルを読んで、それからメールを送信":             {"読んで/ファイルを/ファイルを読んで", "送信/メールを/メールを送信"},
		"hello":                   {"/hello/hello"},
		"":                        {"//"},
		"then":                    {"//then"},
		"authentication":          {"/authentication/authentication"},
		strings.Repeat("a; ", 20): {"/a/a", "/a/a", "/a/a", "/a/a", "/a/a", "/a/a", "/a/a", "*"},
		"İ read":                  {"/İ read/İ read"}, // changes its length in lower case
	} {
		var got []string
		for i, in := range (engine.Rules{}).Intents(text) {
			if got = append(got, in.Action+"/"+in.Object+"/"+in.Text); in.ID != fmt.Sprint(i+1) {
				t.Errorf("%q: id %q", text, in.ID)
			}
		}
		if n := len(want) - 1; want[n] == "*" && len(got) == len(want) {
			got, want = got[:n], want[:n]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestParameters(t *testing.T) {
	schema := func(required string, props string) tool.Spec {
		return tool.Spec{Name: "x", Args: json.RawMessage(`{"type":"object","required":[` + required + `],"properties":{` + props + `}}`)}
	}
	text, num := `{"type":"string"}`, `{"type":"integer"}`
	for _, c := range []struct {
		spec       tool.Spec
		text, want string
		open       string
		unused     string
	}{
		{schema(`"url"`, `"url":`+text), "fetch https://example.org/a?b=c, please", `{"url":"https://example.org/a?b=c"}`, "", ""},
		{schema(`"url"`, `"url":`+text), "請擷取https://example.org/a。謝謝", `{"url":"https://example.org/a"}`, "", ""},
		{schema(`"url"`, `"url":`+text), "https://a.example or https://b.example", `{}`, "url", "https://a.example https://b.example"},
		{schema(`"urls"`, `"urls":{"type":"array","items":{"type":"string","format":"uri"}}`), "https://a.example https://b.example", `{"urls":["https://a.example","https://b.example"]}`, "", ""},
		{schema(`"to"`, `"to":`+text), "mail to ann@example.org.", `{"to":"ann@example.org"}`, "", ""},
		{schema(`"to"`, `"to":`+text), "translate it to French", `{}`, "to", ""},
		{schema(`"path"`, `"path":`+text), "read docs/a.md", `{"path":"docs/a.md"}`, "", ""},
		{schema(`"path"`, `"path":`+text), `read "my notes.txt"`, `{"path":"my notes.txt"}`, "", ""},
		{schema(`"path"`, `"path":`+text), "读取文件 /tmp/报告.txt 和", `{}`, "path", ""},
		{schema(`"path"`, `"path":`+text), "ファイル「予定.txt」を読んで", `{"path":"予定.txt"}`, "", ""},
		{schema(`"path"`, `"path":`+text), "cats and/or dogs, e.g. at 5 p.m.", `{}`, "path", "5"},
		{schema(`"source","destination"`, `"source":`+text+`,"destination":`+text), "copy a.txt to b.txt", `{}`, "source destination", "a.txt b.txt"},
		{schema(`"source","destination"`, `"source":`+text+`,"destination":`+text), "source=a.txt destination=b.txt", `{"source":"a.txt","destination":"b.txt"}`, "", ""},
		{schema(`"day"`, `"day":{"type":"string","format":"date"}`), "on 2026-11-25", `{"day":"2026-11-25"}`, "", ""},
		{schema(`"day"`, `"day":{"type":"string","format":"date"}`), "2026年3月7日の予定", `{"day":"2026-03-07"}`, "", ""},
		{schema(`"day"`, `"day":{"type":"string","format":"date"}`), "on 2026-02-31", `{}`, "day", "2026 -02 -31"},
		{schema(`"at"`, `"at":{"type":"string","format":"date-time"}`), "at 2026-11-25 08:30:00Z", `{"at":"2026-11-25T08:30:00Z"}`, "", ""},
		{schema(``, `"timeout_ms":`+num), "within 2 seconds", `{"timeout_ms":2000}`, "", ""},
		{schema(``, `"wait_seconds":`+num), "等待5分钟", `{"wait_seconds":300}`, "", ""},
		{schema(``, `"wait_seconds":`+num), "2時間後", `{"wait_seconds":7200}`, "", ""},
		{schema(``, `"wait_minutes":`+num), "in 90 seconds", `{}`, "", "90 seconds"},
		{schema(``, `"interval":{"type":"string","format":"duration"}`), "every 1.5 h", `{"interval":"PT5400S"}`, "", ""},
		{schema(`"n"`, `"n":`+num), "roll 1,000 dice", `{"n":1000}`, "", ""},
		{schema(`"n"`, `"n":`+num), "roll 2.5 dice", `{}`, "n", "2.5"},
		{schema(`"n"`, `"n":`+num), "擲 ５ 次", `{"n":5}`, "", ""},
		{schema(``, `"num_results":`+num), "the first 5 results", `{"num_results":5}`, "", ""},
		{schema(``, `"num_results":`+num), "the 3 little pigs", `{}`, "", "3"},
		{schema(``, `"limit":`+num), "limit 7", `{"limit":7}`, "", ""},
		{schema(`"query"`, `"query":`+text), `search for "black cats"`, `{"query":"black cats"}`, "", ""},
		{schema(`"query"`, `"query":`+text), "搜索「黑猫」", `{"query":"黑猫"}`, "", ""},
		{schema(`"query"`, `"query":`+text), "搜索「你好，世界！」", `{"query":"你好，世界！"}`, "", ""},
		{
			schema(`"wait"`, `"wait":{"type":"string","format":"duration"}`), `wait "5 minutes"`,
			`{"wait":"PT300S"}`, "", "",
		},
		{schema(`"query"`, `"query":`+text), "search for black cats", `{}`, "query", ""},
		{schema(`"query"`, `"query":`+text), "don't search for Ann's cats", `{}`, "query", ""},
		{schema(`"text"`, `"text":`+text), "text: hello world", `{}`, "text", ""},
		{schema(`"text"`, `"text":`+text), "text: hello", `{"text":"hello"}`, "", ""},
		{schema(`"num_results","query"`, `"num_results":`+num+`,"query":`+text), `--num-results 5 query="a b"`, `{"num_results":5,"query":"a b"}`, "", ""},
		{schema(`"a","b"`, `"a":`+text+`,"b":`+num), `call it with {"a":"x","b":3}`, `{"a":"x","b":3}`, "", ""},
		{schema(`"a"`, `"a":`+text), `call it with {"a":"x","z":3}`, `{}`, "a", "a x z 3"},
		{schema(``, `"dry":{"type":"boolean"}`), "dry=true", `{"dry":true}`, "", ""},
		{schema(``, `"unit":{"type":"string","enum":["metric","imperial"]}`), "in Metric units", `{"unit":"metric"}`, "", ""},
		{schema(``, `"unit":{"type":"string","enum":["metric","imperial"]}`), "metric or imperial", `{}`, "", ""},
		{schema(``, `"unit":{"type":"string","enum":["metric","imperial"]}`), "geometrical", `{}`, "", ""},
		{schema(``, `"__proto__":{"type":"string"}`), "__proto__=x", `{}`, "", ""},
		{tool.Spec{Name: "x", Args: json.RawMessage(`[]`)}, "a=1", `{}`, "", "1"},
	} {
		got := engine.Rules{}.Parameters(engine.Intent{Text: c.text}, c.spec)
		same(t, c.text, got.Args, c.want)
		if open := strings.Join(got.Open, " "); open != c.open {
			t.Errorf("%s: open %q, want %q", c.text, open, c.open)
		}
		if unused := strings.Join(got.Unused, " "); unused != c.unused {
			t.Errorf("%s: unused %q, want %q", c.text, unused, c.unused)
		}
	}
}
