package model

// Scenario is a named Config with its default budgets.
type Scenario struct {
	Doc string
	Config
}

// Scenarios lists the scenarios, in the order of the help text.
func Scenarios() []Scenario {
	return []Scenario{
		{"one call", Config{
			Scenario: "tool", Inputs: 1, Calls: 1,
			Budget: Budget{Crashes: 2, RunnerCrashes: 1, Partitions: 1, Duplicates: 1, ForgottenAcks: 1},
		}},
		{"one idempotent call", Config{
			Scenario: "toolidem", Inputs: 1, Calls: 1, Idempotent: true,
			Budget: Budget{Crashes: 2, RunnerCrashes: 1, Partitions: 1, Duplicates: 1, ForgottenAcks: 1},
		}},
		{"one call whose tool can find out what became of it", Config{
			Scenario: "toolprobe", Inputs: 1, Calls: 1, Probe: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1, Partitions: 1, Duplicates: 1},
		}},
		{"one call with a probe, and a cancel", Config{
			Scenario: "cancelprobe", Inputs: 1, Calls: 1, Probe: true, Cancel: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1, Partitions: 1},
		}},
		{"the model is asked, then one call", Config{
			Scenario: "toolplan", Inputs: 1, Calls: 1, Plan: true,
			Budget: Budget{Crashes: 2, RunnerCrashes: 1, Duplicates: 1, ForgottenAcks: 1},
		}},
		{"one call and a cancel", Config{
			Scenario: "cancel", Inputs: 1, Calls: 1, Cancel: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1, Partitions: 1, Duplicates: 1},
		}},
		{"one idempotent call and a cancel", Config{
			Scenario: "cancelidem", Inputs: 1, Calls: 1, Idempotent: true, Cancel: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1, Duplicates: 1},
		}},
		{"two inputs without calls", Config{
			Scenario: "two", Inputs: 2,
			Budget: Budget{Crashes: 2, ForgottenAcks: 1},
		}},
		{"two inputs without calls, and a cancel", Config{
			Scenario: "twocancel", Inputs: 2, Cancel: true,
			Budget: Budget{Crashes: 2, ForgottenAcks: 1},
		}},
		{"one call, and a second input", Config{
			Scenario: "twotool", Inputs: 2, Calls: 1,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1},
		}},
		{"one call, a second input, and a cancel", Config{
			Scenario: "twotoolcanc", Inputs: 2, Calls: 1, Cancel: true,
			Budget: Budget{Crashes: 1},
		}},
		{"one call, and a second input that interrupts", Config{
			Scenario: "interrupt", Inputs: 2, Calls: 1, Interrupt: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1, Partitions: 1},
		}},
		{"one call, and a second input that joins the turn", Config{
			Scenario: "steer", Inputs: 2, Calls: 1, Steer: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1},
		}},
		{"one call, a second input that joins the turn, and a cancel", Config{
			Scenario: "steercancel", Inputs: 2, Calls: 1, Steer: true, Cancel: true,
			Budget: Budget{Crashes: 1},
		}},
		{"one call with a confirmation, answered once", Config{
			Scenario: "conf1", Inputs: 1, Calls: 1, Confirm: true, Answers: 1,
			Budget: Budget{Crashes: 1},
		}},
		{"one call with a confirmation, answered twice", Config{
			Scenario: "confirm", Inputs: 1, Calls: 1, Confirm: true, Answers: 2,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1},
		}},
		{"one call that two people must approve", Config{
			Scenario: "foureyes", Inputs: 1, Calls: 1, Confirm: true, Answers: 2, TwoPeople: true,
			Budget: Budget{Crashes: 1},
		}},
		{"the model is asked, then one call that two people must approve", Config{
			Scenario: "foureyesplan", Inputs: 1, Calls: 1, Confirm: true, Answers: 2, TwoPeople: true, Plan: true,
			Budget: Budget{Crashes: 1, ForgottenAcks: 1},
		}},
		{"the model is asked, then one call with a confirmation", Config{
			Scenario: "confplan", Inputs: 1, Calls: 1, Confirm: true, Answers: 1, Plan: true,
			Budget: Budget{Crashes: 1, ForgottenAcks: 1},
		}},
		{"one call with a confirmation, and a cancel", Config{
			Scenario: "confcancel", Inputs: 1, Calls: 1, Confirm: true, Answers: 1, Cancel: true,
			Budget: Budget{Crashes: 1},
		}},
		{"one call with a confirmation, and a second input", Config{
			Scenario: "conftwo", Inputs: 2, Calls: 1, Confirm: true, Answers: 1,
			Budget: Budget{Crashes: 1},
		}},
		{"an answer to a session that may not exist yet", Config{
			Scenario: "confearly", Inputs: 1, Calls: 1, Confirm: true, Answers: 1, Early: true,
			Budget: Budget{Crashes: 1, ForgottenAcks: 1},
		}},
		{"an input that kills every core, and a second one", Config{
			Scenario: "poison", Inputs: 2, Poison: true,
			Budget: Budget{Crashes: 1},
		}},
		{"a healthy input that is delivered repeatedly, and a second one", Config{
			Scenario: "redelivered", Inputs: 2, Redelivered: true,
			Budget: Budget{Crashes: 1},
		}},
		{"two inputs without calls, checkpointed and purged", Config{
			Scenario: "retain", Inputs: 2, Piecewise: true,
			Budget: Budget{Crashes: 1, ForgottenAcks: 1, Stale: 1, Checkpoints: 2, Purges: 2},
		}},
		{"an input without calls, checkpointed and purged, and then one call", Config{
			Scenario: "retaintool", Inputs: 2, Calls: 1, Second: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1, Checkpoints: 1, Purges: 1},
		}},
		{"an input without calls, checkpointed and purged, and then a confirmation", Config{
			Scenario: "retainconf", Inputs: 2, Calls: 1, Second: true, Confirm: true, Answers: 1,
			Budget: Budget{Crashes: 1, Checkpoints: 1, Purges: 1},
		}},
		{"one input without calls; the session is deleted, undeleted and purged", Config{
			Scenario: "delete", Inputs: 1, Delete: true, Undelete: true,
			Budget: Budget{Crashes: 1, Checkpoints: 2, Purges: 2},
		}},
		{"two inputs without calls; the session is deleted and purged", Config{
			Scenario: "deletetwo", Inputs: 2, Delete: true,
			Budget: Budget{Crashes: 1, Checkpoints: 1, Purges: 1},
		}},
		{"one call; the session is deleted, and purged", Config{
			Scenario: "deletetool", Inputs: 1, Calls: 1, Delete: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1, Checkpoints: 1, Purges: 1},
		}},
		{"one call with a confirmation; the session is deleted, and purged", Config{
			Scenario: "deleteconf", Inputs: 1, Calls: 1, Confirm: true, Answers: 1, Delete: true,
			Budget: Budget{Crashes: 1, Checkpoints: 1, Purges: 1},
		}},
		{"two inputs without calls, the second of which interrupts; the session is paused, and resumed", Config{
			Scenario: "pausetwo", Inputs: 2, Interrupt: true, Pause: true,
			Budget: Budget{Crashes: 1, ForgottenAcks: 1},
		}},
		{"one call; the session is paused, and resumed", Config{
			Scenario: "pausetool", Inputs: 1, Calls: 1, Plan: true, Pause: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1},
		}},
		{"one call with a confirmation; the session is paused, and resumed", Config{
			Scenario: "pauseconf", Inputs: 1, Calls: 1, Confirm: true, Answers: 1, Pause: true,
			Budget: Budget{Crashes: 1},
		}},
		{"two calls at once", Config{
			Scenario: "parallel", Inputs: 1, Calls: 2,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1},
		}},
		{"two calls at once, and a cancel", Config{
			Scenario: "parcancel", Inputs: 1, Calls: 2, Cancel: true,
			Budget: Budget{Crashes: 1, RunnerCrashes: 1},
		}},
	}
}
