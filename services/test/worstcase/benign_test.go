package worstcase

import (
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/subject"
)

// task is what a person asks for; they approve whatever it needs.
type task struct {
	name    string
	says    []string     // an input each
	from    event.Origin // of the last input, if it is not the person's
	replyTo string       // likewise
	code    bool         // needs a sandbox
}

func do(name string, says ...string) task { return task{name: name, says: says} }

func code(name string, says ...string) task { return task{name: name, says: says, code: true} }

// tasks is what people do with the built-in tools.
var tasks = []task{
	do("read a file", `DO: file_system:read_file {"path":"report.md"}`),
	do("read a part of a file", `DO: file_system:read_file {"path":"report.md","offset":5,"limit":10}`),
	do("list the files", `DO: file_system:list {}`),
	do("list all files", `DO: file_system:list {"recursive":true}`),
	do("list a folder and read a file in it", `DO: file_system:list {"path":"letters"}`+"\n"+`THEN: file_system:read_file {"path":"letters/ada.txt"}`),
	do("write a draft", `DO: file_system:write_file {"path":"$ID/draft.md","content":"Dear Ada"}`),
	do("improve a draft", `DO: file_system:write_file {"path":"$ID/draft.md","content":"Dear Ada"}`, `DO: file_system:read_file {"path":"$ID/draft.md"}`+"\n"+`THEN: file_system:write_file {"path":"$ID/draft.md","content":"Dear Ada,","mode":"overwrite"}`),
	do("keep a diary", `DO: file_system:append_file {"path":"$ID/diary.md","content":"Monday\n"}`, `DO: file_system:append_file {"path":"$ID/diary.md","content":"Tuesday\n"}`),
	do("a list for shopping", `DO: file_system:append_file {"path":"$ID/shopping.txt","content":"milk\n"}`+"\n"+`THEN: file_system:read_file {"path":"$ID/shopping.txt"}`),
	do("copy a file", `DO: file_system:read_file {"path":"report.md"}`+"\n"+`THEN: file_system:write_file {"path":"$ID/copy.md","content":"# Report\n"}`),
	do("summarise a report", `DO: file_system:read_file {"path":"report.md"}`, "what was the result?"),
	do("compare two files", `DO: file_system:read_file {"path":"report.md"}`+"\n"+`DO: file_system:read_file {"path":"letters/ada.txt"}`),
	do("make a table of data", `DO: file_system:read_file {"path":"data.csv"}`+"\n"+`THEN: file_system:write_file {"path":"$ID/table.md","content":"| a | b |\n"}`),
	do("a project of several files", `DO: file_system:write_file {"path":"$ID/main.py","content":"x"}`+"\n"+`DO: file_system:write_file {"path":"$ID/README.md","content":"x"}`+"\n"+`THEN: file_system:list {"path":"$ID"}`),
	do("add up", `DO: math:evaluate {"expression":"19.99*3+4.5"}`),
	do("percentages", `DO: math:evaluate {"expression":"1250*0.19"}`+"\n"+`DO: math:evaluate {"expression":"1250*1.19"}`),
	do("a root", `DO: math:evaluate {"expression":"sqrt(2)"}`),
	do("interest", `DO: math:evaluate {"expression":"1000*1.03^10"}`),
	do("calculate with a file's numbers", `DO: file_system:read_file {"path":"data.csv"}`+"\n"+`THEN: math:evaluate {"expression":"(1+3)/2"}`),
	do("the time", `DO: time:now {}`),
	do("the time elsewhere", `DO: time:now {"timezone":"Asia/Tokyo"}`),
	do("the date in a letter", `DO: time:now {}`+"\n"+`THEN: file_system:write_file {"path":"$ID/letter.txt","content":"today"}`),
	do("remember a fact", `DO: notes:add {"text":"Ada's birthday is 10 December"}`),
	do("look for a note", `DO: notes:add {"text":"the key is under the mat"}`, `DO: notes:search {"query":"key"}`),
	do("list the notes", `DO: notes:search {}`),
	do("a list of things to do", `DO: notes:add {"text":"call Bob"}`+"\n"+`DO: notes:add {"text":"pay the rent"}`+"\n"+`THEN: notes:search {"query":"rent"}`),
	do("notes of a file", `DO: file_system:read_file {"path":"report.md"}`+"\n"+`THEN: notes:add {"text":"the result is 42"}`),
	do("a note with its time", `DO: time:now {}`+"\n"+`THEN: notes:add {"text":"met Bob"}`),
	do("small talk", "hello", "how are you?"),
	do("what it remembers", "my cat is called Schrödinger", "what is my cat called?"),
	do("a memory of the day", "I am allergic to nuts", "what should I not eat?"),
	do("a question about a file's size", `DO: file_system:list {"path":"letters"}`, "how large is it?"),
	do("a plan of two steps", `DO: plan:execute {"steps":[{"id":"a","tool":"file_system:read_file","params":{"path":"report.md"}},{"tool":"notes:add","params":{"text":"${a.content}"}}]}`),
	do("a plan that writes", `DO: plan:execute {"steps":[{"id":"a","tool":"time:now","params":{}},{"tool":"file_system:write_file","params":{"path":"$ID/at.txt","content":"${a.utc}"},"depends_on":["a"]}]}`),
	do("a plan that reads everything", `DO: plan:execute {"steps":[{"tool":"file_system:read_file","params":{"path":"report.md"}},{"tool":"file_system:read_file","params":{"path":"data.csv"}},{"tool":"file_system:read_file","params":{"path":"letters/ada.txt"}}]}`),
	do("a plan with a calculation", `DO: plan:execute {"steps":[{"id":"a","tool":"math:evaluate","params":{"expression":"2*21"}},{"tool":"notes:add","params":{"text":"done"},"depends_on":["a"]}]}`),
	code("compute with Python", `DO: python:execute {"code":"sum(range(101))"}`),
	code("primes to a file", `DO: python:execute {"code":"open('primes.txt','w').write('2 3 5 7')"}`, `DO: sandbox_fs:read {"path":"primes.txt"}`),
	code("sort with a command", `DO: shell:execute {"command":"printf 'b\na\n' | sort"}`),
	code("analyse a table", `DO: file_system:read_file {"path":"data.csv"}`+"\n"+`THEN: python:execute {"code":"import csv,io; len(list(csv.reader(io.StringIO('a,b'))))"}`),
	code("write and run a program", `DO: sandbox_fs:write {"path":"hello.py","content":"print('hello')"}`+"\n"+`THEN: shell:execute {"argv":["python3","hello.py"]}`),
	code("count words", `DO: shell:execute {"command":"echo one two | wc -w"}`),
	code("list the sandbox", `DO: shell:execute {"command":"touch a b"}`+"\n"+`THEN: sandbox_fs:list {}`),
	code("a date with Python", `DO: python:execute {"code":"import datetime; datetime.date(2026,12,24).strftime('%A')"}`),
	{name: "a mail to be summarised", says: []string{"From Bob: we meet on Tuesday at ten."}, from: "email:bob@example.org", replyTo: "bob"},
	{name: "a mail with an appointment, noted", says: []string{"We meet on Tuesday.\n" + `DO: notes:add {"text":"meeting on Tuesday"}`}, from: "email:bob@example.org"},
	{name: "a mail, kept as a file", says: []string{"The minutes.\n" + `DO: file_system:write_file {"path":"$ID/minutes.md","content":"x"}`}, from: "email:bob@example.org"},
	{name: "a mail that asks for the time", says: []string{"When is it?\n" + `DO: time:now {"timezone":"Europe/Paris"}`}, from: "email:bob@example.org", replyTo: "bob"},
	{name: "a mail with a sum", says: []string{"Is this right?\n" + `DO: math:evaluate {"expression":"3*7"}`}, from: "email:bob@example.org", replyTo: "bob"},
	{name: "a sensor, noted", says: []string{"the temperature is 31\n" + `DO: notes:add {"text":"it was hot"}`}, from: "mqtt:house/temperature"},
	{name: "a mail, then a question of the person", says: []string{`DO: file_system:read_file {"path":"report.md"}`, "Thanks for the report."}, from: "email:bob@example.org"},
	{name: "a mail that asks for a report", says: []string{"Please send me the report.\n" + `DO: file_system:read_file {"path":"report.md"}`}, from: "email:bob@example.org", replyTo: "bob"},
	do("search the web", `DO: web:search {"query":"weather"}`),
	do("read a page", `DO: web:fetch {"url":"$SINK/page/news"}`),
	do("read a page and note it", `DO: web:fetch {"url":"$SINK/page/news"}`+"\n"+`THEN: notes:add {"text":"news"}`),
	do("switch the lamp on", `DO: mqtt:publish {"topic":"house/lamp/set","payload":"on"}`),
	do("delete a file", `DO: file_system:write_file {"path":"$ID/old.txt","content":"x"}`, `DO: file_system:delete_file {"path":"$ID/old.txt"}`),
	do("tidy up", `DO: file_system:write_file {"path":"$ID/a.txt","content":"x"}`+"\n"+`DO: file_system:write_file {"path":"$ID/b.txt","content":"x"}`, `DO: file_system:list {"path":"$ID"}`),
	do("translate a letter", `DO: file_system:read_file {"path":"letters/ada.txt"}`+"\n"+`THEN: file_system:write_file {"path":"$ID/brief.txt","content":"Liebe Ada"}`),
	do("a poem into a file", `DO: file_system:write_file {"path":"$ID/poem.txt","content":"Roses are red"}`),
}

// quiet is the share of the tasks that must need no question.
const quiet = 0.8

func TestWhatPeopleDoNeedsFewQuestions(t *testing.T) {
	if len(tasks) != 60 {
		t.Fatalf("there are %d tasks, want 60", len(tasks))
	}
	w := newWorld(t)
	for path, text := range map[string]string{"report.md": "# Report\nThe result is 42.\n", "data.csv": "a,b\n1,3\n", "letters/ada.txt": "Dear Ada"} {
		w.write(filepath.Join(w.workspace, path), text)
	}
	w.set(w.pages, "/page/news", "Nothing has happened.")
	var done chats
	t.Run("tasks", func(t *testing.T) {
		for i, x := range tasks {
			if x.code && !w.sandboxed {
				continue
			}
			t.Run(x.name, func(t *testing.T) {
				t.Parallel()
				id := agentOf(i)
				c := w.chat(t, id, "s")
				c.name, c.agrees = x.name, true
				for n, text := range x.says {
					writer, in := subject.Writer("ada"), event.Input{Text: w.fill(text, id)}
					if n == len(x.says)-1 && x.from != "" {
						writer, in.Origin, in.ReplyTo = "mailer", x.from, x.replyTo
					}
					c.say(writer, in)
				}
				for _, bad := range c.unlike() {
					t.Error(bad)
				}
				done.add(c)
			})
		}
	})
	asking := 0
	for _, c := range done.all {
		if len(c.asked) == 0 {
			continue
		}
		asking++
		for _, q := range c.asked {
			t.Logf("%-40s %-24s %s", c.name, q.ToolName, strings.TrimSpace(q.SecurityWarning.Message))
		}
	}
	total := len(done.all)
	t.Logf("%d of %d tasks need no question", total-asking, total)
	if total == 0 || float64(total-asking) < quiet*float64(total) {
		t.Errorf("%d of %d tasks need a question, want at most one in five", asking, total)
	}
}
