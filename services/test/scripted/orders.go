package scripted

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/provider/tail"
)

// order is one line of the package's comment: groups are what its expression has found.
type order struct {
	re *regexp.Regexp
	do func(g []string) Reply
}

func on(expr string, do func(g []string) Reply) order {
	return order{regexp.MustCompile("(?is)^" + expr + "$"), do}
}

// The orders; a pair is TOOL ARGS.
const (
	pair  = `(\S+) (.+)`
	pairs = `(\S+) (\{.*\}) ; (\S+) (.+)`
)

var orders = []order{
	on(`call (\S+)(?: (.+))?`, func(g []string) Reply { return Calls(Call(g[1], g[2])) }),
	on(`call2 `+pairs, func(g []string) Reply { return Calls(Call(g[1], g[2]), Call(g[3], g[4])) }),
	on(`chain `+pairs, func(g []string) Reply {
		a, b := Call(g[1], g[2]), Call(g[3], g[4])
		a.ID, b.ID, b.DependsOn = "a", "b", []string{"a"}
		return Calls(a, b)
	}),
	on(`then `+pairs, func(g []string) Reply { return Calls(Call(g[1], g[2])) }),
	on(`calls (\d{1,5}) `+pair, func(g []string) Reply {
		var r Reply
		for range number(g[1]) {
			r.Calls = append(r.Calls, Call(g[2], g[3]))
		}
		return r
	}),
	on(`comment (.+?) :: `+pair, func(g []string) Reply {
		return Reply{Text: g[1], Calls: []contract.ToolCall{Call(g[2], g[3])}}
	}),
	on(`plan (.+)`, func(g []string) Reply { return Calls(Call("plan:execute", g[1])) }),
	on(`loop `+pair, func(g []string) Reply { return Calls(Call(g[1], g[2])) }),
	on(`unknown tool`, func([]string) Reply { return Calls(Call("no:such_tool", "")) }),
	on(`hang`, func([]string) Reply { return Reply{Hang: true} }),
	on(`never ends`, func([]string) Reply { return Reply{Endless: true} }),
	on(`garbage`, func([]string) Reply { return Reply{} }),
	on(`slow (\d{1,6}) ms`, func(g []string) Reply { return Reply{Text: "slow", Delay: millis(g[1])} }),
	on(`slow (\d{1,6}) ms call `+pair, func(g []string) Reply {
		return Reply{Delay: millis(g[1]), Calls: []contract.ToolCall{Call(g[2], g[3])}}
	}),
	on(`stream (\d{1,6}) words(?: every (\d{1,5}) ms)?`, func(g []string) Reply {
		return Reply{Words: number(g[1]), Delay: millis(g[2])}
	}),
	on(`twins `+pair, func(g []string) Reply {
		a, b := Call(g[1], g[2]), Call(g[1], g[2])
		a.ID, b.ID = "twin", "twin"
		return Calls(a, b)
	}),
	on(`describe the files.*`, func([]string) Reply { return Reply{Of: describe} }),
	on(`answer in json`, func([]string) Reply { return Reply{Of: schema} }),
	on(`text (\d{1,8}) bytes`, func(g []string) Reply { return Reply{Text: strings.Repeat("x", number(g[1]))} }),
	on(`fail ([a-z_]+)(?: retry (\d{1,6}) ms)?`, func(g []string) Reply {
		e := adapter.Errorf(contract.ErrorCode(g[1]), "as the test asked")
		e.RetryInMS = int64(number(g[2]))
		return Reply{Error: e}
	}),
	on(`spend (\d{1,9}) tokens(?: call `+pair+`)?`, func(g []string) Reply {
		n := int64(number(g[1]))
		return paid(contract.Usage{InputTokens: n, OutputTokens: n}, "spent "+g[1]+" tokens", g[2], g[3])
	}),
	on(`spend (\d{1,9}) tokens, (\d{1,9}) cached, (\d{1,9}) reasoning`, func(g []string) Reply {
		n := int64(number(g[1]))
		return Reply{Text: g[0], Usage: contract.Usage{
			InputTokens: n, OutputTokens: n, CachedTokens: int64(number(g[2])), ReasoningTokens: int64(number(g[3])),
		}}
	}),
	on(`count nothing`, func([]string) Reply {
		return Reply{Text: "counted nothing", Usage: contract.Usage{Uncounted: 1, Unpriced: 1}}
	}),
	on(`cost (\d{1,12})(?: call `+pair+`)?`, func(g []string) Reply {
		return paid(contract.Usage{CostMicroUSD: int64(number(g[1]))}, "cost "+g[1], g[2], g[3])
	}),
}

func paid(u contract.Usage, text, tool, args string) Reply {
	if tool == "" {
		return Reply{Text: text, Usage: u}
	}
	return Reply{Calls: []contract.ToolCall{Call(tool, args)}, Usage: u}
}

// Calls replies with calls.
func Calls(c ...contract.ToolCall) Reply { return Reply{Calls: c} }

// Call is a call with arguments as a model writes them: none are an object, and what is
// not JSON becomes a JSON string. The id is the model's.
func Call(tool, args string) contract.ToolCall {
	c := contract.ToolCall{Tool: tool, Args: json.RawMessage(args)}
	if args == "" {
		c.Args = json.RawMessage("{}")
	}
	if !json.Valid(c.Args) {
		c.Args, _ = json.Marshal(args) //nolint:errchkjson // of a string
	}
	return c
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // the expressions admit digits alone; none are 0
	return n
}

func millis(digits string) time.Duration { return time.Duration(number(digits)) * time.Millisecond }

// numbered is "word1 word2 …".
func numbered(n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = "word" + strconv.Itoa(i+1)
	}
	return strings.Join(words, " ")
}

// obey follows the order that the message is.
func obey(t *tail.Tail) Reply {
	for _, o := range orders {
		if g := o.re.FindStringSubmatch(t.Message); g != nil {
			return round(t, g, o.do(g))
		}
	}
	return Reply{Text: "echo: " + t.Message}
}

// round is what the order asks for by now: most ask for calls once.
func round(t *tail.Tail, g []string, r Reply) Reply {
	switch {
	case len(r.Calls) == 0:
		return r
	case t.Rounds > 0 && strings.HasPrefix(strings.ToLower(g[0]), "loop "):
	case t.Rounds == 1 && t.Succeeded() && strings.HasPrefix(strings.ToLower(g[0]), "then "):
		r = Calls(Call(g[3], g[4]))
	case t.Rounds > 0:
		return Reply{Text: paragraphs(t, said)}
	}
	return r
}

// withIDs gives calls without an id one that is unique in the turn.
func withIDs(r Reply, round int) Reply {
	for i := range r.Calls {
		if r.Calls[i].ID == "" {
			r.Calls[i].ID = fmt.Sprintf("c%d_%d", round, i)
		}
	}
	return r
}

// said phrases a result.
func said(r tail.Result) string {
	s := r.Tool + ": " + r.Text
	if !r.OK {
		f := r.Fault()
		s = fmt.Sprintf("%s failed: %s: %s", r.Tool, f.Code, f.Message)
	}
	if r.Note != "" {
		s += " [" + r.Note + "]"
	}
	for _, f := range r.Files {
		s += " {" + Saw(f) + "}"
	}
	return s
}

func paragraphs(t *tail.Tail, phrase func(tail.Result) string) string {
	lines := make([]string, len(t.Results))
	for i, r := range t.Results {
		lines[i] = strings.TrimSpace(phrase(r))
	}
	return strings.Join(lines, "\n\n")
}

// Pieces cuts text into pieces of up to seven runes, as a tokenizer might, and long
// texts into larger ones: each is a write, and a busy machine may need long for many.
func Pieces(s string) []string {
	runes := []rune(s)
	size, long := 7, 500
	if len(runes) > long {
		size = long
	}
	var out []string
	for len(runes) > 0 {
		n := min(size, len(runes))
		out = append(out, string(runes[:n]))
		runes = runes[n:]
	}
	return out
}
