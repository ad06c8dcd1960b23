package webtest_test

import (
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/tail"
	"skandha.dev/services/test/scripted"
	"skandha.dev/services/test/webtest"
)

// page is an answer with all that Markdown has.
const page = `## How a turn goes

The core runs *sense → plan → act → reflect*, and **every decision is one commit**. See [the log](https://example.com/log).

1. An input is stored, and acknowledged.
2. The model is asked; its calls are checked:
   - by ` + "`policy`" + `, the last match wins
   - by hooks, which may deny
3. The results are recorded.

` + "```" + `python
import math

def primes(n):
    """The first n primes."""
    found, k = [], 2
    while len(found) < n:  # slow, and clear
        if all(k % p for p in found):
            found.append(k)
        k += 1
    return found
` + "```" + `

| step | budget | may deny |
|:-----|------:|:--:|
| before_plan | 2 s | yes |
| before_act | 10 s | yes |

> What was acknowledged ends in exactly one terminal event.`

// looker is a model whose answers are worth looking at.
func looker() provider.Adapter {
	return scripted.By(func(message string) scripted.Reply {
		order, rest, _ := strings.Cut(message, " ")
		switch order {
		case "explain":
			return scripted.Reply{Text: page}
		case "call":
			tool, args, _ := strings.Cut(rest, " ")
			r := scripted.Calls(scripted.Call(tool, args))
			r.Text = "I will do that with " + tool + "."
			return r
		case "two":
			return scripted.Calls(scripted.Call("math:evaluate", `{"expression":"12*(3+4)"}`),
				scripted.Call("time:now", `{"timezone":"Asia/Tokyo"}`))
		case "hang":
			return scripted.Reply{Hang: true}
		case "fail":
			return scripted.Reply{Error: adapter.Errorf(contract.ErrorCode(rest), "the key was refused by the API")}
		}
		return scripted.Reply{Text: "You said: " + message}
	}, func(r tail.Result) string {
		if !r.OK {
			return "`" + r.Tool + "` did not run: " + r.Fault().Message
		}
		return "Done. `" + r.Tool + "` answered."
	})
}

func TestLook(t *testing.T) {
	r := webtest.Start(t,
		webtest.Options{
			Model: looker(),
			Config: "policy: [{tool: 'notes:*', effect: confirm, reason: 'It is remembered for ever.'},{tool: " +
				"'file_system:write_file', effect: confirm, reason: 'It replaces a file.'}]\n",
		})
	p := r.Page(t)
	p.Open("/")
	p.Wait(`one("#token")`)
	p.Shot("login")
	p.Open("/" + r.Link()[len(r.URL)+1:])
	p.Wait(`one("#input")`)
	p.Session("kitchen")
	p.Wait(`one(".welcome")`)
	p.Shot("welcome")
	p.Say("explain")
	p.Wait(`text(".turn-foot")`)
	p.Shot("markdown")
	p.Say("two")
	p.Wait(`all(".turn-foot:not([hidden])").length == 2`)
	p.Click(".call-line")
	p.Shot("calls")
	p.Say("call notes:add {\"text\": \"the key is under the mat\\u202e\"}")
	p.Wait(`one(".ask[data-open=true]")`)
	p.Shot("ask")
	p.Click(".ask-more summary")
	p.Shot("ask-always")
	p.Click(".ask-approve")
	p.Wait(`one(".ask[data-outcome=approved]")`)
	p.Wait(`all(".turn-foot:not([hidden])").length == 3`)
	p.Say("call file_system:write_file {\"path\": \"notes/plan.md\", \"content\": " +
		"\"# Plan\\n\\n- buy tea\\n- water the plants\\n- call Ada\\n- sleep\\n\"}")
	p.Click(".ask[data-open=true] .ask-approve")
	p.Wait(`all(".turn-foot:not([hidden])").length == 4`)
	p.Say("call file_system:write_file {\"path\": \"notes/plan.md\", \"mode\": \"overwrite\", \"content\": " +
		"\"# Plan\\n\\n- buy green tea\\n- water the plants\\n- sleep\\n- and wake up again\\n\"}")
	p.Wait(`one(".ask[data-open=true]")`)
	p.Shot("ask-diff")
	p.Prefer("dark", false)
	p.Shot("ask-diff-dark")
	p.Size(360, 740)
	p.Shot("ask-narrow")
	p.Size(1360, 860)
	p.Type(".ask[data-open=true] .ask-reason-input", "Ada wants to be called")
	p.Click(".ask[data-open=true] .ask-refuse")
	p.Wait(`all(".turn-foot:not([hidden])").length == 5`)
	p.Shot("refused-dark")
	p.Say("fail auth")
	p.Wait(`one(".turn-failed")`)
	p.Say("hang")
	p.Wait(`one(".thinking")`)
	p.Say("and this waits")
	p.Wait(`text(".said-chips").includes("waiting")||all(".said-chips .chip").length`)
	p.Type("#input", "/")
	p.Shot("queue-commands-dark")
	p.Prefer("light", false)
	p.Press("Escape") // closes the list
	p.Press("Escape")
	p.Press("Escape")
	p.Press("Escape") // however long the first one was ago by now
	p.Wait(`one(".turn[data-failed=cancelled]")`)
	p.Shot("cancelled")
	p.Press("Alt+1")
	p.Shot("panel")
	p.Click(".turn-foot .link-btn")
	p.Shot("timeline")
	p.Size(360, 740)
	p.Press("Alt+0")
	p.Shot("narrow")
	p.Click(".topbar .icon-btn")
	p.Shot("drawer")
}
