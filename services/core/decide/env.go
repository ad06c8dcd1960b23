package decide

import (
	"encoding/json"
	"time"

	"skandha.dev/pkg/event"
	"skandha.dev/pkg/executor"
	"skandha.dev/pkg/guide"
	"skandha.dev/pkg/hook"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
)

// Env is what deciding needs of the world. Answers that matter are written into
// the commit, so folding never needs an Env.
type Env struct {
	Now       time.Time        // by the core's clock; a cause's stream time goes before it
	Heard     time.Time        // when this core got the answer to decide on; zero if unknown
	Delivery  uint64           // how often the door's cause has been delivered
	Nonce     func() string    // fresh on every call, unguessable
	Agent     *Agent           // nil: no such agent
	Tools     Catalog          // what can be called now
	Executors Directory        // who is alive
	Hooks     Hooks            // the hook engine
	Policy    Policy           // the security layer
	Version   func() string    // for /status
	Stats     func() []ToolUse // for /metrics

	Plugins   func() []PluginUse           // for /plugins
	HookStats func() []HookUse             // for /metrics
	Replay    func(Replay) (string, error) // for /replay: an account in Markdown, or ErrNoTurn
}

// Agent is an agent's configuration.
type Agent struct {
	Name     subject.Agent
	Guide    guide.Guide
	Guides   []string // of plugins, by name: the shell appends them to Guide
	Required []string // of Guides: without them the agent does not answer
	Unguided string   // why it does not answer now: a required guide is missing; set by the shell
	Provider string   // by name; empty: the first of an instance's
	Model    string   // empty: the provider's default
	Tools    []string // offered; empty: every public tool
	Limits   Limits
	Confirm  time.Duration // how long a person may take to answer
	// Granted are the permissions that tools may need: of the agent, and of each guide that
	// says something about them. A tool needs each of its permissions in each of them.
	Granted [][]string
}

// Limits bound one turn. Zero means no limit, except for Queue.
type Limits struct {
	Rounds       int           // model calls per turn
	Calls        int           // tool calls per model answer
	Tokens       int64         // input and output tokens per turn
	CostMicroUSD int64         // per turn
	Wall         time.Duration // per turn, without the time that people take
	ModelCall    time.Duration // one model call
	Queue        int           // inputs that may wait
	WindowTurns  int           // turns that the model sees
}

// DefaultLimits are those of an agent that declares none.
func DefaultLimits() Limits {
	return Limits{
		Rounds: 25, Calls: 32, Tokens: 500_000, Wall: 10 * time.Minute,
		ModelCall: 2 * time.Minute, Queue: 256, WindowTurns: 20,
	}
}

// Catalog knows the tools that live executors offer.
type Catalog interface {
	// Lookup returns a tool by its name, public or internal.
	Lookup(name string) (tool.Spec, bool)
	// Gone reports since when no live executor offers a tool (zero if one does, or if
	// that is unknown), and whether it belongs to an inactive plugin.
	Gone(name string) (since time.Time, left bool)
	// Arrived reports when an executor or a plugin that offers the tool was last new
	// (zero if that is unknown).
	Arrived(name string) time.Time
	// Public lists the tools that may be offered to models, in a stable order.
	Public() []tool.Spec
	// Validate checks arguments against the tool's schema and returns them with
	// defaults applied, or every error.
	Validate(name string, args json.RawMessage) (json.RawMessage, []string)
}

// Directory knows the live executors.
type Directory interface {
	// PickRunner chooses the least busy runner with a free slot that offers the tool,
	// but those. While the instance that it has to be is there, it is that or none;
	// empty: it may be any.
	PickRunner(spec tool.Spec, be subject.Instance, not []subject.Instance) (subject.Instance, bool)
	// PickProvider chooses the least busy provider instance with a free slot that
	// offers the agent's provider.
	PickProvider(not []subject.Instance) (subject.Instance, bool)
	// NoProvider is how long no executor has offered the agent's provider; 0 if one
	// does, with a free slot or without.
	NoProvider() time.Duration
	// Providers describes what is there, for /provider.
	Providers() []provider.Info
}

// Hooks is the hook engine: it asks every plugin of a point and folds the answers.
type Hooks interface {
	// Any reports whether a plugin is registered at the point. It costs no message.
	Any(p hook.Point) bool
	// Run asks with the envelope's data. Plugin, InvocationID and Deadline are the engine's to fill.
	Run(env hook.Envelope) hook.Decision
	// Shape is Run at before_act. What a plugin makes of the arguments has to fit.
	Shape(env hook.Envelope, fits func(args json.RawMessage) (json.RawMessage, error)) hook.Decision
	// Judge asks about a call as it is to run, after Run has come to shaped at before_act:
	// the judges, and all that have not agreed to exactly this call. It denies, has a
	// person asked, or continues.
	Judge(env hook.Envelope, shaped hook.Decision) hook.Decision
	// Rejudge is Judge for a call that was let pass earlier, by the judges alone that the
	// configuration names now.
	Rejudge(env hook.Envelope) hook.Decision
}

// Effect is what policy says.
type Effect = event.Effect

// The effects.
const (
	Allow = event.EffectAllow
	Deny  = event.EffectDeny
	Ask   = event.EffectConfirm
)

// Access is a question to the policy: may the principal do the action with the
// resource, in this context?
type Access struct {
	Principal subject.Writer // whose input it is, or who answers
	Action    string         // event.ActionCall, or event.ActionConfirmation: to answer a request about it
	Resource  tool.Spec      // with its permissions, its risk, and whether it is idempotent
	Granted   [][]string     // patterns of permissions: the tool needs each of its own in each of the lists
	Unguided  string         // why the agent may call nothing: [Agent.Unguided]
	Context   Context
}

// Context is all that is known of a call beside who calls what.
type Context struct {
	Ref    subject.Ref // agent and session
	Turn   string
	Call   string
	Source string          // where the input was perceived, or the answer given, as its sender says
	Args   json.RawMessage // exactly what would run
}

// Ruling is the policy's answer.
type Ruling struct {
	Effect      Effect
	Rule        string             // what decided: "policy[3]", "risk", "permission", "default"
	Reason      string             // always with Deny
	Warning     *hook.Warning      // with Ask: what a person is told
	Obligations *event.Obligations // unless it is denied
}

// Policy decides who may do what.
type Policy interface {
	Evaluate(Access) Ruling
}

// ToolUse is a tool's statistics, for /metrics.
type ToolUse struct {
	Tool        string
	Used        int64
	Unknown     int64 // of which nobody knows whether they ran
	SuccessRate float64
	MeanLatency time.Duration
}

// Cause is a message that was stored from outside.
type Cause struct {
	Sequence uint64
	Kind     subject.CauseKind
	Writer   subject.Writer
	Time     time.Time // the stream's
	Body     []byte
}

// Closings are what became of calls that core asked their runners to stop,
// before a decision that ends them (rule 10). Keyed by call.
type Closings map[string]Closing

// Closing is what is known of a call that is being closed.
type Closing struct {
	Answer      executor.Answer
	Unreachable bool // nobody could say
}
