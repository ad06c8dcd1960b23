package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/planner"
	"skandha.dev/services/internal/text"
)

// Bounds of a model's answer.
const (
	maxAnswer = 128 << 10 // bytes
	maxSteps  = 16
	maxAsk    = 2000 // bytes of the question to the person
	maxReason = 500  // bytes of the reasoning
	maxWord   = 120  // bytes of an intent's action and object
)

// Answer is the implementation of the steps by a model: what it answered to a [Question].
type Answer struct {
	scenario   string
	intents    []Intent // one for each step; none: no tool
	action     Intent   // of the whole request
	ask        string
	confidence float64
	reasoning  string
}

// Scenario implements [Classifier].
func (a Answer) Scenario(string) string { return a.scenario }

// Intents implements [Recognizer]. Each has its tool.
func (a Answer) Intents(string) []Intent {
	if len(a.intents) == 0 {
		return []Intent{a.action}
	}
	return a.intents
}

// Parameters implements [Extractor].
func (a Answer) Parameters(in Intent, spec tool.Spec) Parameters {
	p := Parameters{Args: in.args}
	var given map[string]json.RawMessage
	if json.Unmarshal(in.args, &given) != nil {
		given = nil // it was read as an object before
	}
	for _, prop := range propertiesOf(spec) {
		if v := strings.TrimSpace(string(given[prop.name])); prop.required && (v == "" || v == "null") {
			p.Open = append(p.Open, prop.name)
		}
	}
	return p
}

// wire is an answer as the schema of the question says.
type wire struct {
	Scenario string `json:"scenario"`
	Intent   struct {
		Action string `json:"action"`
		Object string `json:"object"`
	} `json:"intent"`
	Steps []struct {
		ID         *provider.ID    `json:"id"`
		Tool       string          `json:"tool"`
		Parameters json.RawMessage `json:"parameters"`
		DependsOn  []provider.ID   `json:"depends_on"`
	} `json:"steps"`
	Ask        string   `json:"ask"`
	Confidence *float64 `json:"confidence"`
	Reasoning  string   `json:"reasoning"`
}

// ReadAnswer reads a model's answer to a question about these tools: JSON, with or without a
// fence and other text around it. wrong says everything that is wrong with it, for the model.
func ReadAnswer(answer string, tools []string) (a Answer, wrong []string) {
	if len(answer) > maxAnswer {
		return a, []string{fmt.Sprintf("it has %d bytes, at most %d", len(answer), maxAnswer)}
	}
	body, ok := objectIn(answer)
	if !ok {
		return a, []string{"it contains no complete JSON object"}
	}
	var w wire
	if err := json.Unmarshal(body, &w); err != nil {
		return a, []string{strings.TrimPrefix(err.Error(), "json: ")}
	}
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	switch {
	case w.Confidence == nil:
		bad("confidence is missing")
	case *w.Confidence < 0 || *w.Confidence > 1:
		bad("confidence is %g, want 0 to 1", *w.Confidence)
	default:
		a.confidence = *w.Confidence
	}
	if len(w.Steps) > maxSteps {
		bad("steps has %d entries, at most %d", len(w.Steps), maxSteps)
		w.Steps = nil
	}
	if slices.Contains(tool.Scenarios(), w.Scenario) {
		a.scenario = w.Scenario
	}
	a.action = Intent{
		ID: "1", Action: text.Cut(strings.TrimSpace(w.Intent.Action), maxWord),
		Object: text.Cut(strings.TrimSpace(w.Intent.Object), maxWord),
	}
	a.ask, a.reasoning = text.Cut(strings.TrimSpace(w.Ask), maxAsk), text.Cut(strings.TrimSpace(w.Reasoning), maxReason)
	for i, s := range w.Steps {
		in := a.action
		in.ID, in.Tool, in.args = fmt.Sprint(i+1), s.Tool, s.Parameters
		if s.ID != nil && *s.ID != "" {
			in.ID = string(*s.ID)
		}
		for _, d := range s.DependsOn {
			in.DependsOn = append(in.DependsOn, string(d))
		}
		if !slices.Contains(tools, s.Tool) {
			bad("steps[%d].tool is %q, want one of %s", i, text.Cut(s.Tool, maxWord), strings.Join(tools, ", "))
		}
		switch p := bytes.TrimSpace(s.Parameters); {
		case len(p) == 0 || string(p) == "null":
			in.args = json.RawMessage("{}")
		case p[0] != '{':
			bad("steps[%d].parameters is not an object", i)
		}
		a.intents = append(a.intents, in)
	}
	return a, wrong
}

// objectIn returns the first JSON object in a text that is complete.
func objectIn(s string) (json.RawMessage, bool) {
	for tries := 0; tries < maxTries; tries++ {
		at := strings.IndexByte(s, '{')
		if at < 0 {
			return nil, false
		}
		var body json.RawMessage
		if json.NewDecoder(strings.NewReader(s[at:])).Decode(&body) == nil {
			return body, true
		}
		s = s[at+1:]
	}
	return nil, false
}

// maxTries bounds how many braces may precede the answer, so that reading takes linear time.
const maxTries = 8

// Conclude reads a model's answer to the question q. If it cannot be used, the outcome has the
// question again, with what is wrong; if this was the second answer already (last), the person
// is asked about the arguments that are open, and anything else leads to an empty outcome.
func Conclude(r Request, q Question, answer string, last bool) Outcome {
	a, wrong := ReadAnswer(answer, q.Tools)
	out := Outcome{Reasoning: a.reasoning}
	intents := out.understand(r.Text, a, a)
	if len(wrong) == 0 && a.ask != "" {
		out.Clarify = a.ask
		return out
	}
	if len(wrong) == 0 && len(a.intents) == 0 {
		return out // no tool
	}
	s := &Selection{By: event.ByModel, Confidence: a.confidence}
	var open string
	if len(wrong) == 0 {
		s.Steps, open, wrong = r.steps(intents, a)
	}
	if len(wrong) == 0 && a.confidence < r.threshold() {
		wrong = []string{fmt.Sprintf("confidence is %g, below %g, and ask is empty: ask the user what is meant",
			a.confidence, r.threshold())}
		open = unsure(r.Text, a.intents)
	}
	switch {
	case len(wrong) == 0:
		out.Selection = s
		for _, name := range q.Tools {
			if len(s.Alternatives) < maxAlternatives && !slices.Contains(s.Tools(), name) {
				s.Alternatives = append(s.Alternatives, name)
			}
		}
	case !last:
		out.Question = q.repair(answer, wrong)
	default:
		out.Clarify, out.Reasoning = open, "the model's answer cannot be used: "+wrong[0]
	}
	return out
}

// steps turns intents with tools into steps whose arguments are valid. Otherwise it returns everything
// that is wrong, and the question for the person about what is open.
func (r *Request) steps(intents []Intent, x Extractor) (steps []Step, open string, wrong []string) {
	ids := make([]string, len(intents))
	for i, in := range intents {
		ids[i] = in.ID
	}
	for i, in := range intents {
		spec := r.spec(in.Tool)
		found := x.Parameters(in, spec)
		st := Step{ID: in.ID, Tool: in.Tool, Args: found.Args, DependsOn: in.DependsOn}
		known := func(id string) bool { return slices.Contains(ids, id) }
		if len(planner.References(st.Args, known)) == 0 {
			args, errs := r.Validate(in.Tool, st.Args)
			for _, e := range errs {
				wrong = append(wrong, fmt.Sprintf("steps[%d].parameters: %s", i, e))
			}
			if len(errs) > 0 && open == "" {
				open = missingText(r.Text, spec, found.Open, errs)
			}
			st.Args = args
		}
		steps = append(steps, st)
	}
	if len(wrong) > 0 {
		return nil, open, wrong
	}
	if _, err := planner.Parse(planOf(steps)); err != nil {
		return nil, "", planner.Reasons(err)
	}
	return steps, "", nil
}
