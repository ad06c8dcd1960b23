package model_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"skandha.dev/services/test/model"
)

// atOnce bounds the number of concurrent explorations, to limit memory.
var atOnce = make(chan struct{}, 2)

func TestProtocolIsExhausted(t *testing.T) {
	runs := model.Small()
	if raceEnabled || testing.Short() {
		t.Log("NOT all of the small worlds: smoke runs only, under -race or -short")
		runs = model.Smoke()
	}
	explore(t, runs)
}

func TestMutationsAreFound(t *testing.T) {
	explore(t, model.Broken())
}

func explore(t *testing.T, runs []model.Run) {
	t.Helper()
	for _, run := range runs {
		t.Run(run.Line, func(t *testing.T) {
			t.Parallel()
			cfg, err := model.Parse(run.Line)
			if err != nil {
				t.Fatal(err)
			}
			atOnce <- struct{}{}
			r := model.New(cfg).Explore()
			<-atOnce
			if r.Outcome != run.Want || r.Reason != run.Reason {
				t.Fatalf("%s %q, want %s %q, in explore -s %s\n%s\n%s",
					r.Outcome, r.Reason, run.Want, run.Reason, run.Line, strings.Join(r.Trace, "\n"), r.Last)
			}
			if r.Overflow > 0 {
				t.Errorf("the log is too short for %d futures", r.Overflow)
			}
			t.Logf("%s, %d states", r.Outcome, r.States)
		})
	}
}

func TestEveryScenarioIsInEverySuite(t *testing.T) {
	suites := map[string][]model.Run{"smoke": model.Smoke(), "small": model.Small(), "full": model.Full()}
	for _, s := range model.Scenarios() {
		for name, runs := range suites {
			if !slices.ContainsFunc(runs, func(r model.Run) bool { return strings.Fields(r.Line)[0] == s.Scenario }) {
				t.Errorf("scenario %s is missing in suite %s", s.Scenario, name)
			}
		}
	}
}

func TestEveryMutationIsTried(t *testing.T) {
	for _, m := range model.Mutations[1:] {
		if !slices.ContainsFunc(model.Broken(),
			func(r model.Run) bool { return strings.HasSuffix(r.Line, " -bug "+m.Name) }) {
			t.Errorf("mutation %s is never tried", m.Name)
		}
	}
}

func TestSuitesParse(t *testing.T) {
	for _, run := range slices.Concat(model.Smoke(), model.Small(), model.Full(), model.Broken()) {
		if _, err := model.Parse(run.Line); err != nil {
			t.Errorf("%s: %v", run.Line, err)
		}
	}
}

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, line := range []string{
		"", "nowhere", "tool -bug none", "tool -att 4", "tool -att 0", "tool -crash many", "tool -crash 256", "tool extra",
	} {
		if _, err := model.Parse(line); !errors.Is(err, model.ErrUsage) {
			t.Errorf("Parse(%q) = %v, want ErrUsage", line, err)
		}
	}
}

func TestACapIsReported(t *testing.T) {
	cfg, err := model.Parse("tool -max 100")
	if err != nil {
		t.Fatal(err)
	}
	if r := model.New(cfg).Explore(); r.Outcome != model.Capped {
		t.Errorf("outcome %s, want %s", r.Outcome, model.Capped)
	}
}
