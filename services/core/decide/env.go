package decide

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/commands"
	"skandha.dev/services/core/planner/engine"
	"skandha.dev/services/internal/executor"
)

// Env is the environment that decisions read. Answers that matter are written into
// the commit, so folding never needs an Env.
type Env struct {
	Now       time.Time                  // by the core's clock; a cause is decided at its stream time instead
	Heard     time.Time                  // when this core received the answer to decide on; zero if unknown
	Delivery  uint64                     // how many times the cause in hand has been delivered
	Nonce     func() string              // fresh on every call, unguessable
	Agent     *Agent                     // nil: unknown agent
	Agents    func(subject.Agent) *Agent // every agent, as Agent; nil: unknown
	Tools     Catalog                    // the tools that can be called now
	Executors Directory                  // the live executors
	Hooks     Hooks                      // the hook engine
	Policy    Policy                     // the security layer
	Approvals Approvals                  // who approves calls; nil: any one person who may answer
	Matcher   engine.Matcher             // matches tools with requests; nil: all tools are offered
	Memory    Memory                     // what agents remember; nil: nothing
	Project   event.Project              // the notes of the workspace, as they are now
	Outside   func(subject.Writer) bool  // whether a plugin brings what the writer sends; nil: none does
	Undelete  time.Duration              // how long a deleted session can be brought back
	Version   func() string              // for /status
	Stats     func() []commands.ToolUse  // for /metrics

	Plugins   func() []commands.Plugin             // for /plugins
	HookStats func() []commands.HookUse            // for /metrics
	Replay    func(commands.Turns) (string, error) // for /replay: Markdown, or [commands.ErrNoTurn]
}

// Agent is an agent's configuration.
type Agent struct {
	Name     subject.Agent
	Guide    guide.Guide
	Guides   []string // of files and plugins, by name: the shell appends them to Guide
	Basis    string   // of Guides: the one that the agent's own guide overrides; empty: none
	Required []string // of Guides: without them the agent does not answer
	Unguided string   // why it does not answer now: a required guide is missing; set by the shell
	// Providers may answer, in order of preference: when one fails, the next is asked.
	// Empty: the first that an instance offers.
	Providers []Choice
	Tools     []string // offered: names, or beginnings that end in "*"; nil: every public tool
	// Shortlist is how many tools the model is shown at most, besides those that the turn has
	// used or found and those of core itself; 0: all.
	Shortlist int
	// Confidence is the confidence from which the decision engine's choice is used; 0:
	// [engine.DefaultConfidence].
	Confidence float64
	Limits     Limits
	Confirm    time.Duration // how long a person may take to answer
	// Granted lists the granted permissions: those of the agent, and those of each guide
	// that limits them. A tool needs each of its permissions in each of the lists.
	Granted [][]string
	Team    *Team // nil: none

	// in a session that works for another one, see within
	above []*Agent
	only  [][]string
	depth int
}

// Limits bound one turn. Zero means no limit, except for Queue.
type Limits struct {
	Rounds              int           // model calls per turn
	Calls               int           // tool calls per model answer
	Tokens              int64         // input and output tokens per turn
	CostMicroUSD        int64         // per turn
	SessionCostMicroUSD int64         // per session
	SessionTokens       int64         // per session; set for those that work for another one
	Wall                time.Duration // per turn, not counting the time that people take
	ModelCall           time.Duration // one model call
	Queue               int           // inputs that may wait
	WindowTurns         int           // turns that the model sees
	WindowTokens        int           // estimated tokens of the conversation above which it is summarised

	// The limits of all sessions of the agent at one core; 0: none. What is over them waits.
	Turns                  int // turns at once
	InputsPerMinute        int // inputs that are taken up
	SessionInputsPerMinute int // the same in one session
}

// Gated reports whether there are limits of what runs at once, or per minute.
func (l Limits) Gated() bool {
	return l.Turns > 0 || l.InputsPerMinute > 0 || l.SessionInputsPerMinute > 0
}

// DefaultLimits returns the limits of an agent that declares none.
func DefaultLimits() Limits {
	return Limits{
		Rounds: 25, Calls: 32, Tokens: 500_000, Wall: 10 * time.Minute,
		ModelCall: 2 * time.Minute, Queue: 256, WindowTurns: 20, WindowTokens: 24_000,
	}
}

// Catalog lists the tools that live executors offer.
type Catalog interface {
	// Lookup returns a tool by name, public or internal.
	Lookup(name string) (tool.Spec, bool)
	// Gone reports since when no live executor has offered a tool (zero if one does, or
	// if that is unknown), and whether the tool belongs to an inactive plugin.
	Gone(name string) (since time.Time, left bool)
	// Arrived reports when an executor or a plugin that offers the tool last registered
	// (zero if that is unknown).
	Arrived(name string) time.Time
	// Public lists the tools that may be offered to models, in a stable order.
	Public() []tool.Spec
	// Validate checks arguments against the tool's schema and returns them with
	// defaults applied, or every error.
	Validate(name string, args json.RawMessage) (json.RawMessage, []string)
}

// Directory lists the live executors.
type Directory interface {
	// PickRunner chooses the least busy runner with a free slot that offers the tool,
	// except those in not. While the instance prefer is present, only it may be chosen;
	// if prefer is empty, any may.
	PickRunner(spec tool.Spec, prefer subject.Instance, not []subject.Instance) (subject.Instance, bool)
	// PickProvider chooses the least busy provider instance with a free slot that
	// offers the named provider, except those in not. Empty names mean any provider.
	PickProvider(name string, not []subject.Instance) (subject.Instance, bool)
	// NoProvider returns how long no executor has offered the named provider; 0 if one
	// accepts work, with or without a free slot. Executors that drain offer nothing.
	NoProvider(name string) time.Duration
	// Providers describes the available providers, for /provider.
	Providers() []provider.Info
}

// Hooks is the hook engine. It asks every plugin of a point and combines the answers.
type Hooks interface {
	// Any reports whether a plugin is registered at the point. It sends no message.
	Any(p hook.Point) bool
	// Run asks with the envelope's data. The engine sets Plugin, InvocationID and Deadline.
	Run(env hook.Envelope) hook.Decision
	// Shape is Run at before_act. fits must accept the arguments that a plugin returns.
	Shape(env hook.Envelope, fits func(args json.RawMessage) (json.RawMessage, error)) hook.Decision
	// Judge asks about a call in its final form, after Shape returned shaped. It asks the
	// judges, and all plugins that have not agreed to exactly this call. It denies, requires
	// a confirmation, or continues.
	Judge(env hook.Envelope, shaped hook.Decision) hook.Decision
	// Rejudge is Judge for a call that passed earlier. It asks only the judges that the
	// configuration names now.
	Rejudge(env hook.Envelope) hook.Decision
}

// Memory is what agents remember beyond a session.
type Memory interface {
	// Recall searches the memory of the session's agent for an input. Trouble in the answer says why less
	// was found than there may be.
	Recall(ref subject.Ref, input string) event.Recalled
}

// Effect is the policy's decision.
type Effect = event.Effect

// The effects.
const (
	Allow = event.EffectAllow
	Deny  = event.EffectDeny
	Ask   = event.EffectConfirm
)

// Access asks the policy whether the principal may perform the action on the resource
// in this context.
type Access struct {
	Principal subject.Writer // the writer of the input, or of the answer
	From      string         // the person, as the writer has authenticated them; may be empty
	Action    string         // event.ActionCall, or event.ActionConfirmation to answer a request about the call
	Resource  tool.Spec      // the tool, with its permissions and its risk
	Granted   [][]string     // patterns of permissions: each list must grant each permission of the tool
	Unguided  string         // why the agent may not call anything: [Agent.Unguided]
	Context   Context
}

// Name returns the principal's name: the writer, and after a slash the person, if known.
func (a Access) Name() string {
	if a.From == "" {
		return string(a.Principal)
	}
	return string(a.Principal) + "/" + a.From
}

// Context is everything else that is known about a call.
type Context struct {
	Ref    subject.Ref // agent and session
	Turn   string
	Call   string
	Source string          // where the input or the answer came from, as its sender claims
	Args   json.RawMessage // exactly the arguments that would run
	// After says which texts from outside the model has seen; see [Labels].
	After []string
	// Stranger is where the turn's answer goes to, if the input is not from a user.
	Stranger string
}

// RuleGranted is the rule of a ruling that denies a call for want of a permission.
const RuleGranted = "granted"

// Ruling is the policy's answer to an [Access].
type Ruling struct {
	Effect      Effect
	Rule        string             // what decided, e.g. "policy[3]", "risk", "permission" or "default"
	Reason      string             // always set with Deny
	Warning     *hook.Warning      // with Ask: the warning for the person
	Obligations *event.Obligations // not with Deny
	Ungrantable bool               // with Ask: no approval for the session replaces the question
}

// Policy decides who may do what.
type Policy interface {
	Evaluate(Access) Ruling
}

// Approvals are the rules that say who approves which calls.
type Approvals interface {
	// Person returns the name of the person behind a writer and what it says about the sender;
	// empty if the configuration names no such person.
	Person(by subject.Writer, from string) string
	// Demand returns what the approval of a call takes, and how long people have: 0 means as long as
	// the agent's configuration says. Nil: the answer of any one person.
	Demand(a Access) (*event.Approval, time.Duration)
	// May returns why a person may not answer a request at a time; empty if they may. delegator is
	// the person who delegated it to them, if they may not answer themselves.
	May(d event.Approval, person string, at time.Time) (delegator, why string)
}

// Closings holds, by call, the outcome of calls that core asked their runners to stop
// before a decision that ends them (rule 10).
type Closings map[string]Closing

// Closing is what is known about a call that is being closed.
type Closing struct {
	Answer      executor.Answer
	Unreachable bool // the runner could not be asked
}
