package model

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Config describes one world to explore: its participants, the faults it may contain,
// and, for a mutation, the rule to break.
type Config struct {
	Scenario   string
	Inputs     uint8 // inputs that the user sends, at most 2
	Calls      uint8 // tool calls of the first input's turn, assigned in one commit, at most 2
	Second     bool  // they are of the second input's turn
	Idempotent bool  // the calls are idempotent
	Probe      bool  // the tool can find out what became of an attempt
	Plan       bool  // the model is asked before the calls are known
	Confirm    bool  // the calls wait for a person's approval
	Answers    uint8 // answers that this person may give
	TwoPeople  bool  // the calls wait for the approval of two people
	Early      bool  // they may answer before the session exists
	Cancel     bool  // one cancel, of any input
	Interrupt  bool  // the second input interrupts
	Steer      bool  // the second input joins the running turn, and the model is asked about the results of calls
	Poison     bool  // the first input kills every core that parses it
	Delete     bool  // one delete of the session
	Undelete   bool  // and then one undelete
	Pause      bool  // one pause of the session, and then one resume
	Piecewise  bool  // retention deletes message by message, so that any of them may remain
	// Redelivered: the first cause, which is healthy, is delivered repeatedly to cores that
	// stall or lose their connection.
	Redelivered bool

	Budget
	Attempts  [maxCalls]uint8 // of each call, at most 3
	Mutation  Mutation
	MaxStates int
}

// ErrUsage means that a command line does not describe a valid world.
var ErrUsage = errors.New("usage")

// Options holds the flags of a command line. Budgets that are not set keep the
// scenario's default.
type Options struct {
	scenario, mutation string
	max                int
	given              map[string]uint8
}

// Register defines the flags.
func Register(flags *flag.FlagSet) *Options {
	o := &Options{given: map[string]uint8{}}
	flags.StringVar(&o.scenario, "s", "", "the `scenario`")
	flags.StringVar(&o.mutation, "bug", "", "the `mutation` of the protocol")
	flags.IntVar(&o.max, "max", 8_000_000, "cap on the number of states")
	for _, f := range []struct{ name, usage string }{
		{"crash", "`crashes` of cores"},
		{"rc", "`crashes` of runners, permanent"},
		{"pt", "`partitions` between the cores and a runner"},
		{"dup", "`dispatches` duplicated"},
		{"unack", "`times` the bus forgets all acks"},
		{"noise", "`messages` on the subject of the commits that are none (default 0)"},
		{"stale", "`decisions` on a state that is not the latest"},
		{"ckpt", "`attempts` at a checkpoint or tombstone"},
		{"purge", "`runs` of a retention worker"},
		{"net", "`faults`: busy runners, lost dispatches, buried PubAcks (default 1)"},
		{"att", "`attempts` of the first call, 1 to 3 (default 2)"},
		{"ans", "`answers` to the confirmation, 0 to 2"},
		{"att2", "`attempts` of the second call, 1 to 3 (default 1)"},
	} {
		flags.Func(f.name, f.usage, func(value string) error {
			n, err := strconv.ParseUint(value, 10, 8)
			o.given[f.name] = uint8(n)
			return err
		})
	}
	return o
}

// Config returns the world that the flags describe.
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
	cfg.NetFaults, cfg.Attempts, cfg.MaxStates = 1, [maxCalls]uint8{2, 1}, o.max
	for name, to := range map[string]*uint8{
		"crash": &cfg.Crashes, "rc": &cfg.RunnerCrashes, "pt": &cfg.Partitions, "dup": &cfg.Duplicates,
		"unack": &cfg.ForgottenAcks, "net": &cfg.NetFaults, "noise": &cfg.Noise, "att": &cfg.Attempts[0],
		"att2": &cfg.Attempts[1], "ans": &cfg.Answers, "stale": &cfg.Stale, "ckpt": &cfg.Checkpoints, "purge": &cfg.Purges,
	} {
		if n, given := o.given[name]; given {
			*to = n
		}
	}
	for _, n := range cfg.Attempts {
		if n < 1 || n > maxAttempts {
			return cfg, fmt.Errorf("%w: want 1 to %d attempts", ErrUsage, maxAttempts)
		}
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
