package model

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// Config is one world to explore: who takes part, which faults it may contain,
// and, for a mutation, the rule to break.
type Config struct {
	Scenario   string
	Inputs     uint8 // inputs a user sends, at most 2
	Calls      uint8 // tool calls of the first input's turn, assigned in one commit, at most 2
	Idempotent bool  // the calls are
	Plan       bool  // the model is asked before the calls are known
	Confirm    bool  // the calls wait for a person's approval
	Answers    uint8 // answers this person may give
	Cancel     bool  // one cancel, of any input
	Interrupt  bool  // the second input interrupts
	Poison     bool  // the first input kills every core that parses it

	Budget
	Attempts  uint8 // of each call, at most 3
	Mutation  Mutation
	MaxStates int
}

// Scenario is a named Config with its default budgets.
type Scenario struct {
	Doc string
	Config
}

// Scenarios lists what can be explored, in the order of the help text.
func Scenarios() []Scenario {
	return []Scenario{
		{"one call", Config{Scenario: "tool", Inputs: 1, Calls: 1,
			Budget: Budget{Crashes: 2, RunnerCrashes: 1, Partitions: 1, Duplicates: 1, ForgottenAcks: 1}}},
		{"one idempotent call", Config{Scenario: "toolidem", Inputs: 1, Calls: 1, Idempotent: true,
			Budget: Budget{Crashes: 2, RunnerCrashes: 1, Partitions: 1, Duplicates: 1, ForgottenAcks: 1}}},
		{"the model is asked, then one call", Config{Scenario: "toolplan", Inputs: 1, Calls: 1, Plan: true,
			Budget: Budget{Crashes: 2, RunnerCrashes: 1, Duplicates: 1, ForgottenAcks: 1}}},
		{"one call and a cancel", Config{Scenario: "cancel", Inputs: 1, Calls: 1, Cancel: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1, Partitions: 1, Duplicates: 1}}},
		{"one idempotent call and a cancel", Config{Scenario: "cancelidem", Inputs: 1, Calls: 1, Idempotent: true, Cancel: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1, Duplicates: 1}}},
		{"two inputs without calls", Config{Scenario: "two", Inputs: 2,
			Budget: Budget{Crashes: 2, ForgottenAcks: 1}}},
		{"two inputs without calls, and a cancel", Config{Scenario: "twocancel", Inputs: 2, Cancel: true,
			Budget: Budget{Crashes: 2, ForgottenAcks: 1}}},
		{"one call, and a second input", Config{Scenario: "twotool", Inputs: 2, Calls: 1,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1}}},
		{"one call, a second input, and a cancel", Config{Scenario: "twotoolcanc", Inputs: 2, Calls: 1, Cancel: true,
			Budget: Budget{Crashes: 1}}},
		{"one call, and a second input that interrupts", Config{Scenario: "interrupt", Inputs: 2, Calls: 1, Interrupt: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1, Partitions: 1}}},
		{"one call with a confirmation, answered once", Config{Scenario: "conf1", Inputs: 1, Calls: 1, Confirm: true, Answers: 1,
			Budget: Budget{Crashes: 1}}},
		{"one call with a confirmation, answered twice", Config{Scenario: "confirm", Inputs: 1, Calls: 1, Confirm: true, Answers: 2,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1}}},
		{"the model is asked, then one call with a confirmation", Config{Scenario: "confplan", Inputs: 1, Calls: 1, Confirm: true, Answers: 1, Plan: true,
			Budget: Budget{Crashes: 1, ForgottenAcks: 1}}},
		{"one call with a confirmation, and a cancel", Config{Scenario: "confcancel", Inputs: 1, Calls: 1, Confirm: true, Answers: 1, Cancel: true,
			Budget: Budget{Crashes: 1}}},
		{"one call with a confirmation, and a second input", Config{Scenario: "conftwo", Inputs: 2, Calls: 1, Confirm: true, Answers: 1,
			Budget: Budget{Crashes: 1}}},
		{"an input that kills every core, and a second one", Config{Scenario: "poison", Inputs: 2, Poison: true,
			Budget: Budget{Crashes: 1}}},
		{"two calls at once", Config{Scenario: "parallel", Inputs: 1, Calls: 2,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1}}},
		{"two calls at once, and a cancel", Config{Scenario: "parcancel", Inputs: 1, Calls: 2, Cancel: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1}}},
	}
}

// ErrUsage is the error of a command line that names no world.
var ErrUsage = errors.New("usage")

// Options are the flags of a command line. Budgets that are not given keep the
// scenario's default.
type Options struct {
	scenario, mutation string
	max                int
	budgets            map[string]*int
}

// Register defines the flags.
func Register(flags *flag.FlagSet) *Options {
	o := &Options{budgets: map[string]*int{}}
	flags.StringVar(&o.scenario, "s", "", "the `scenario`")
	flags.StringVar(&o.mutation, "bug", "", "the `mutation` of the protocol")
	flags.IntVar(&o.max, "max", 8_000_000, "cap on the number of states")
	for _, f := range []struct{ name, usage string }{
		{"crash", "crashes of cores"},
		{"rc", "crashes of runners, for ever"},
		{"pt", "partitions between the cores and a runner"},
		{"dup", "duplicated dispatches"},
		{"unack", "times the bus forgets all acks"},
		{"net", "busy runners, lost dispatches, buried PubAcks (default 1)"},
		{"att", "attempts per call, 1 to 3 (default 2)"},
	} {
		o.budgets[f.name] = flags.Int(f.name, -1, f.usage)
	}
	return o
}

// Config is the world that the flags describe.
func (o *Options) Config() (Config, error) {
	var cfg Config
	for _, s := range Scenarios() {
		if s.Scenario == o.scenario {
			cfg = s.Config
		}
	}
	if cfg.Scenario == "" {
		return cfg, fmt.Errorf("%w: unknown scenario %q", ErrUsage, o.scenario)
	}
	cfg.NetFaults, cfg.Attempts, cfg.MaxStates = 1, 2, o.max
	for name, to := range map[string]*uint8{
		"crash": &cfg.Crashes, "rc": &cfg.RunnerCrashes, "pt": &cfg.Partitions, "dup": &cfg.Duplicates,
		"unack": &cfg.ForgottenAcks, "net": &cfg.NetFaults, "att": &cfg.Attempts,
	} {
		if given := *o.budgets[name]; given > 255 {
			return cfg, fmt.Errorf("%w: -%s is at most 255", ErrUsage, name)
		} else if given >= 0 {
			*to = uint8(given)
		}
	}
	if cfg.Attempts < 1 || cfg.Attempts > maxAttempts {
		return cfg, fmt.Errorf("%w: -att is 1 to %d", ErrUsage, maxAttempts)
	}
	var err error
	cfg.Mutation, err = ParseMutation(o.mutation)
	return cfg, err
}

// Parse reads a world from a command line such as "tool -crash 3 -rc 0".
func Parse(line string) (Config, error) {
	flags := flag.NewFlagSet("explore", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	o := Register(flags)
	if err := flags.Parse(append([]string{"-s"}, strings.Fields(line)...)); err != nil {
		return Config{}, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if flags.NArg() > 0 {
		return Config{}, fmt.Errorf("%w: unexpected %q", ErrUsage, flags.Arg(0))
	}
	return o.Config()
}
