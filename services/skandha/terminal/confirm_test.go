package terminal

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/tool"
)

func TestRequests(t *testing.T) {
	play(t, []scenario{
		{"a request is shown a moment before it takes an answer", func(r *rig) {
			r.begin()
			r.request("c1")
			r.sees("mail:send wants to run", `"to": "bob"`, "⚠ it leaves", "1:00", "goes to the input line")
			r.seesNot("y approve")
			r.later(grace)
			r.sees("y approve", "n refuse")
			r.seesNot("always")
			r.keys("y")
			r.idle()
			r.sees("Enter approves")
			r.keys("esc")
			r.sees("y approve")
			r.keys("y", "enter")
			r.asked(`answer c1 hash-c1 true ""`)
			r.sees("sending your answer")
			r.keys("y", "n")
			r.idle()
			r.event("t5", event.ActConfirmed{Call: "c1", Outcome: event.Approved, By: "me", Source: Source})
			r.reads("mail:send approved by you")
			r.seesNot("wants to run")
		}},
		{"two people must approve, and the first waits for the second", func(r *rig) {
			r.begin()
			r.event("t5", event.ToolCallRequest{
				ToolName: "mail:send", ConfirmationID: "c1", Hash: "hash-c1", Args: []byte(`{"to":"bob"}`), ExpiresAt: r.now.Add(time.Minute),
				Approval: &event.Approval{Rule: "approvals.rules[0]", By: []string{"ops"}, People: 2, Requester: "dan"},
			})
			r.later(grace)
			r.sees("2 people of ops, but not dan, must approve it", "y approve")
			r.keys("y", "enter")
			r.asked(`answer c1 hash-c1 true ""`)
			r.event("t5", event.ActApproved{Call: "c1", By: "me", Person: "ann", Left: 1})
			r.reads("mail:send approved by ann; one more person must approve it")
			r.sees("approved by ann", "wants to run")
			r.event("t5", event.ActConfirmed{
				Call: "c1", Outcome: event.Approved, By: "ui-cid", Person: "cid", For: "bob", Others: []string{"ann"}, Source: "web",
			})
			r.reads("mail:send approved by cid for bob in web, after ann")
			r.seesNot("wants to run")
		}},
		{"a person who is typing when a request comes decides nothing", func(r *rig) {
			r.begin()
			r.request("c1")
			r.keys("enter")
			r.later(grace - time.Millisecond) // since Enter
			r.typed("nearly")
			r.idle()
			r.sees("› nearly", "Esc: answer this")
			r.keys("enter")
			r.asked(`say id1 "nearly" terminal`)
			r.later(grace - time.Millisecond)
			r.keys("y")
			r.idle()
			r.sees("› y")
			r.keys("esc", "y") // nobody approves what has just come to the front
			r.idle()
			r.keys("n", "enter") // but Esc ends the grace
			r.asked(`answer c1 hash-c1 false ""`)
		}},
		{"a word answers nothing, whatever it begins with", func(r *rig) {
			r.begin()
			for i, text := range []string{"you should keep it", "write it again", "yes", "now wait", "at 1 pm", "a1 x"} {
				r.request("c1")
				r.later(grace)
				r.typed(text)
				r.idle()
				r.sees("› "+text, "Esc: answer this")
				r.keys("enter")
				r.later(grace)
				r.asked(fmt.Sprintf("say id%d %q terminal", i+1, text))
				r.event("t5", event.ActConfirmed{Call: "c1", Outcome: event.Expired, By: "core"})
			}
		}},
		{"what was begun ends with a paste", func(r *rig) {
			r.begin()
			r.request("c1")
			r.later(grace)
			r.keys("y")
			r.sees("Enter approves")
			r.send(tea.PasteMsg{Content: "es, go on"})
			r.sees("› yes, go on", "Esc: answer this")
			r.keys("esc", "enter")
			r.idle()
			r.later(grace)
			r.keys("y", "esc", "enter")
			r.idle()
			r.sees("y approve", "› yes, go on")
		}},
		{"a refusal may have a reason", func(r *rig) {
			r.begin()
			r.request("c1")
			r.later(grace)
			r.keys("n")
			r.idle()
			r.sees("Enter refuses")
			r.keys("enter")
			r.asked(`answer c1 hash-c1 false ""`)
			r.event("t5",
				event.ActConfirmed{Call: "c1", Outcome: event.Denied, By: "me", Source: Source, Reason: "refused by me"})
			r.reads("mail:send refused by you")
			r.request("c2")
			r.later(grace)
			r.keys("r")
			r.typed("not today")
			r.keys("enter")
			r.asked(`answer c2 hash-c2 false "not today"`)
		}},
		{"Esc gives up giving a reason, and what was typed before comes back", func(r *rig) {
			r.begin()
			r.typed("draft")
			r.request("c1")
			r.sees("Esc: answer this")
			r.keys("esc", "r")
			r.typed("because")
			r.sees("why not › because")
			r.keys("esc")
			r.sees("› draft")
			r.idle()
		}},
		{"always is one of what is offered", func(r *rig) {
			r.begin()
			r.request("c1", event.Grant{Tool: "mail:send", Args: map[string]string{"to": "bob"}},
				event.Grant{Tool: "mail:send", Hash: "h"})
			r.later(grace)
			r.keys("a")
			r.sees("1 mail:send with to = bob", "2 exactly this call of mail:send")
			r.keys("3", "9", "0")
			r.idle()
			r.keys("2")
			r.idle()
			r.sees("Enter approves this call, and from now on in this session exactly this call", "of mail:send")
			r.keys("enter")
			r.asked(`answer c1 hash-c1 true "" always exactly this call of mail:send`)
		}},
		{"a user who answers elsewhere is named, and the next request must be shown for a moment again", func(r *rig) {
			r.begin()
			r.request("c1")
			r.request("c2")
			r.later(grace)
			r.sees("approval, 1 of 2")
			r.event("t5",
				event.ActConfirmed{
					Call: "c1", Outcome: event.Approved, By: "ui-ann", Source: "web", Always: &event.Grant{Tool: "mail:send"},
				})
			r.reads("mail:send approved by ui-ann in web, and from now on in this session: every\ncall of mail:send")
			r.seesNot("y approve")
			r.keys("y")
			r.idle()
			r.sees("› y")
			r.event("t5", event.ActConfirmed{Call: "c2", Outcome: event.Expired, By: "core"})
			r.reads("expired: no answer in time, which counts as a refusal")
		}},
		{"an answer that is refused can be given again", func(r *rig) {
			r.begin()
			r.request("c1")
			r.later(grace)
			r.keys("y", "enter")
			r.asked(`answer c1 hash-c1 true ""`)
			r.event("",
				event.Audited{Principal: "me", Action: "confirmation", Call: "c1", Effect: event.EffectDeny, Reason: "too late"})
			r.reads("Your answer was not accepted: too late")
			r.sees("y approve")
		}},
		{"explaining shows everything that is hidden", func(r *rig) {
			r.begin()
			r.event("t5",
				event.ToolCallRequest{
					ToolName: "a\u200bb", ConfirmationID: "c1",
					Args: json.RawMessage(`{"x":"` + strings.Repeat("1\u202e", 500) + `"}`), ExpiresAt: r.now.Add(time.Minute),
				})
			r.sees("a⟨U+200B⟩b", "more lines; e shows them all")
			r.send(described{"c1", "its \x1b[2Jwords"})
			r.reads("description: its �[2Jwords", "1⟨U+202E⟩1⟨U+202E⟩")
		}},
		{"--yes approves and says so", func(r *rig) {
			r.m.cfg.Yes = true
			r.begin()
			r.request("c1")
			r.asked(`answer c1 hash-c1 true "--yes"`)
			r.reads(`Approved by --yes: mail:send {"to":"bob"}`)
		}},
		{"what was pasted answers nothing", func(r *rig) {
			r.begin()
			r.request("c1")
			r.later(grace)
			r.send(tea.PasteMsg{Content: "y"})
			r.idle()
			r.sees("› y", "Esc: answer this")
		}},
		{"what does not fit must be read before it is approved", func(r *rig) {
			r.send(tea.WindowSizeMsg{Width: 40, Height: 12})
			r.begin()
			r.event("t5", event.ToolCallRequest{
				ToolName: "sh", ConfirmationID: "c1", Hash: "h",
				Args:      json.RawMessage(`{"cmd":"` + strings.Repeat("echo fine; ", 60) + `rm -rf x"}`),
				ExpiresAt: r.now.Add(time.Minute), Always: []event.Grant{{Tool: "sh"}},
			})
			r.later(grace)
			r.sees("e show all of it, to approve", "n refuse")
			r.seesNot("y approve")
			r.keys("y", "enter", "a")
			r.idle()
			r.send(described{"c1", "runs"})
			r.reads(`f x"`)
			r.sees("y approve", "a always…")
			r.keys("y", "enter")
			r.asked(`answer c1 h true ""`)
		}},
		{"an edit is a diff, its other arguments are JSON", func(r *rig) {
			r.begin()
			r.edit("fs:edit", `{"path":"a.go","old":"one\n\ttwo\nthree","new":"one\n\t2\nthree","all":true}`)
			r.sees(`{"path": "a.go", "all": true}`, "replaces this text:", "  one", "- ⇥   two", "+ ⇥   2", "  three")
		}},
		{"a file that was read is compared, until something else happens to it", func(r *rig) {
			r.begin()
			lines := "1\\n2\\n3\\n4\\n5\\n6\\n7\\n"
			r.call("fs:read", `{"path":"a"}`, `{"content":"`+lines+`","next_offset":null}`)
			write := `{"path":"a","content":"` + strings.Replace(lines, "6", "six\u202e", 1) + `"}`
			r.call("fs:read", `{"path":"a"}`, `{"content":"`+lines+`"}`)
			r.edit("fs:write", write)
			r.sees("compared with what was last read in this session:", "… 3 unchanged lines", "  5", "- 6",
				"+ six⟨U+202E⟩", "  7")
			r.later(grace)
			r.keys("n", "enter")
			<-r.did
			r.event("t5", event.ActConfirmed{Call: "c9", Outcome: event.Denied, By: "me", Source: Source})
			r.call("fs:write", `{"path":"a","mode":"append","content":"8"}`, `{}`)
			r.edit("fs:write", write)
			r.sees("replaces the whole content:", "+ 1", "+ six⟨U+202E⟩")
		}},
		{"what is added, and a file that is new", func(r *rig) {
			r.begin()
			r.edit("fs:append_file", `{"path":"a","content":"more"}`)
			r.sees("appends:", "+ more", "(no newline at end)")
			r.event("t5", event.ActConfirmed{Call: "c9", Outcome: event.Expired, By: "core"})
			r.edit("file_system:write_file", `{"path":"a","content":""}`)
			r.sees("creates a new file; does not replace an existing one:", `{"path": "a"}`)
		}},
		{"texts of several lines are read as lines", func(r *rig) {
			r.begin()
			r.edit("python:execute", `{"code":"x = 1\nif x:\n\tprint(\"\u200b\")","timeout":1e400}`)
			r.sees(`{"timeout": 1e400}`, "code:", "  x = 1", "  if x:", `  ⇥   print("⟨U+200B⟩")`)
		}},
		{"fields that one reader takes for one are shown as they came", func(r *rig) {
			r.begin()
			r.edit("fs:edit", `{"path":"good","old":"a","new":"b","Path":"evil"}`)
			r.sees(`{"path": "good", "old": "a", "new": "b", "Path": "evil"}`)
			r.seesNot("replaced")
		}},
	})
}

// edit has a request come for a call.
func (r *rig) edit(name, args string) {
	r.event("t5",
		event.ToolCallRequest{
			ToolName: name, Args: json.RawMessage(args), ConfirmationID: "c9", ExpiresAt: r.now.Add(time.Minute),
		})
}

// call has a call run.
func (r *rig) call(name, args, result string) {
	r.event("t5", event.ActRequested{Call: "c8", Tool: name, Args: json.RawMessage(args)})
	r.event("t5",
		event.ActCompleted{Call: "c8", Tool: name, Result: tool.Result{Success: true, Data: json.RawMessage(result)}})
}
