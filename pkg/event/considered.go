package event

import "skandha.dev/pkg/guide"

// Method is how the texts of requests and tools were compared.
type Method string

// The methods. What compares words is never called semantic.
const (
	MethodLexical  Method = "lexical"  // words
	MethodSemantic Method = "semantic" // embeddings
	MethodHybrid   Method = "hybrid"   // both
)

// PlanConsidered reports which tools core considered for a plan, and why. Of the commit that
// carries it, it is the reason for the tools that the plan offers, or for its steps.
type PlanConsidered struct {
	Plan   string         `json:"plan"`
	Mode   guide.Decision `json:"mode"`
	Method Method         `json:"method,omitempty"`
	// Call is set if a call of tools:find asked: from now on, the turn offers the candidates.
	Call       string      `json:"call,omitempty"`
	Scenario   string      `json:"scenario,omitempty"` // of [tool.Scenarios]; empty: none in particular
	Intent     *Intent     `json:"intent,omitempty"`
	Candidates []Candidate `json:"candidates"` // the best ones, at most [MaxCandidates], best first
	Offered    int         `json:"offered"`    // how many tools the plan offers
	Of         int         `json:"of"`         // how many there are
	Selection  *Selection  `json:"selection,omitempty"`
	Reasoning  string      `json:"reasoning,omitempty"`
}

// MaxCandidates is how many candidates a [PlanConsidered] lists at most.
const MaxCandidates = 10

// Intent is what a request asks for.
type Intent struct {
	Action string `json:"action,omitempty"` // the verb
	Object string `json:"object,omitempty"` // what it acts on
}

// Candidate is a tool that was considered, with the factors of its score, each from 0 to 1.
type Candidate struct {
	Tool       string  `json:"tool"`
	Score      float64 `json:"score"`
	Fit        float64 `json:"fit"`        // of the tool's description to the request
	Success    float64 `json:"success"`    // rate of calls that succeeded; 0.5 for a tool without calls
	Latency    float64 `json:"latency"`    // 1 is immediate
	Risk       float64 `json:"risk"`       // 1 is harmless
	Preference float64 `json:"preference"` // how much the agent has used it
	Why        string  `json:"why,omitempty"`
}

// SelectedBy is what made a selection.
type SelectedBy string

// The makers of selections.
const (
	ByRules SelectedBy = "rules"
	ByModel SelectedBy = "model"
)

// Selection is the tool that core chose, or the tools, as steps of a plan.
type Selection struct {
	Tools        []string   `json:"tools"`
	By           SelectedBy `json:"by"`
	Confidence   float64    `json:"confidence"` // 0 to 1
	Alternatives []string   `json:"alternatives,omitempty"`
}

// EventType implements Payload.
func (PlanConsidered) EventType() Type { return TypePlanConsidered }
