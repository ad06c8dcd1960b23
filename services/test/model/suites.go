package model

// Run is one exploration and its expected outcome.
type Run struct {
	Line   string // an argument of Parse
	Want   Outcome
	Reason string // Violation: the violated invariant
}

// none selects a world without faults and with one attempt per call. Flags after it
// allow some again.
const none = " -crash 0 -rc 0 -pt 0 -dup 0 -unack 0 -net 0 -att 1"

// Smoke returns a minimal run of every scenario, for slow builds: 1.5 million states.
func Smoke() []Run {
	return sound(
		"tool"+none+" -crash 1 -rc 1 -net 1",
		"toolidem"+none+" -crash 1 -rc 1 -net 1",
		"toolprobe"+none+" -rc 1 -att 2",
		"cancelprobe"+none+" -rc 1 -att 2",
		"toolplan"+none+" -crash 1 -rc 1 -net 1",
		"cancel"+none+" -crash 1 -rc 1",
		"cancelidem"+none+" -crash 1 -rc 1",
		"two -crash 3 -unack 2",
		"twocancel"+none,
		"twotool"+none+" -crash 1",
		"twotoolcanc"+none+"",
		"interrupt"+none+" -crash 1",
		"steer"+none,
		"steercancel"+none,
		"conf1"+none,
		"confirm"+none+" -ans 1",
		"foureyes"+none+" -ans 1",
		"foureyesplan"+none+" -ans 1",
		"confplan"+none,
		"confcancel"+none+" -ans 0 -crash 1",
		"conftwo"+none+" -ans 0",
		"confearly"+none,
		"poison",
		"redelivered",
		"parallel"+none,
		"parcancel"+none,
		"two"+none+" -crash 1 -noise 2",
		"retain"+none+" -ckpt 1 -purge 1",
		"retaintool"+none,
		"retainconf"+none+" -ans 0",
		"delete"+none+" -ckpt 1 -purge 1",
		"deletetwo"+none+" -ckpt 0 -purge 0",
		"deletetool"+none,
		"deleteconf"+none+" -ans 0",
		"pausetwo"+none,
		"pausetool"+none,
		"pauseconf"+none+" -ans 0",
	)
}

// Small returns the runs that test every change: 15 million states. The largest world of conftwo, another 12 million, is
// in Full.
func Small() []Run {
	return sound(
		"conftwo -ans 0 -rc 1 -net 0",
		"confirm"+none,
		"foureyes"+none+" -ans 1",
		"foureyesplan"+none+" -ans 1",
		"confcancel"+none,
		"confplan"+none+" -crash 1",
		"conf1 -att 1 -unack 1",
		"conf1 -crash 0 -net 0",
		"confearly"+none+" -crash 1 -unack 1",
		"two -crash 3 -unack 2",
		"twocancel",
		"twotool -rc 0 -net 0",
		"twotoolcanc"+none+" -crash 1",
		"poison",
		"redelivered",
		"tool -pt 0 -crash 1",
		"tool -rc 0 -crash 1 -unack 0",
		"toolidem -pt 0 -crash 1",
		"toolprobe -pt 0 -crash 1",
		"toolprobe -rc 0 -dup 0",
		"cancelprobe -crash 0 -pt 0",
		"toolplan -crash 1",
		"cancel -crash 0 -pt 0",
		"cancel -crash 0 -rc 0 -dup 0",
		"cancelidem -rc 0 -net 0",
		"interrupt -rc 0 -pt 0",
		"interrupt -rc 0 -net 0 -att 1",
		"steer"+none+" -crash 1 -rc 1",
		"steercancel"+none,
		"parallel -att 1",
		"parallel -crash 0 -rc 0 -net 0",
		"parcancel"+none+" -crash 1",
		"two"+none+" -crash 2 -noise 3",
		"twocancel"+none+" -noise 1",
		"tool"+none+" -crash 1 -rc 1 -net 1 -noise 1",
		"cancel"+none+" -crash 1 -noise 1",
		"conf1"+none+" -noise 1",
		"retain"+none+" -stale 0",
		"retain"+none+" -crash 1 -unack 1 -ckpt 1 -purge 1",
		"retaintool"+none+" -crash 1",
		"retainconf"+none+" -ans 0",
		"conf1"+none+" -ckpt 1 -purge 1",
		"twocancel"+none+" -ckpt 1 -purge 1",
		"redelivered"+none+" -crash 1 -ckpt 1 -purge 1",
		"poison"+none+" -ckpt 1 -purge 1",
		"two"+none+" -noise 1 -ckpt 1 -purge 1",
		"delete"+none+" -ckpt 1 -purge 1",
		"deletetwo"+none,
		"deletetool"+none+" -crash 1",
		"deleteconf"+none+" -ans 0",
		"pausetwo"+none,
		"pausetool"+none+" -crash 1",
		"pauseconf"+none+" -ans 0",
	)
}

// Full returns the runs that test a change of the protocol, one after the other: 135
// million states, some minutes, up to 3 GB.
func Full() []Run {
	return sound(
		"two -crash 3 -unack 2",
		"twocancel",
		"poison",
		"redelivered",
		"tool",
		"tool -pt 0 -rc 2",
		"tool -att 3 -crash 1 -unack 0 -pt 0",
		"toolidem -pt 0",
		"toolprobe",
		"toolprobe -att 3 -crash 0",
		"cancelprobe",
		"toolplan",
		"cancel -rc 0",
		"cancel -pt 0",
		"cancelidem",
		"twotool",
		"twotoolcanc"+none+" -crash 1 -rc 1",
		"interrupt -pt 0 -crash 0",
		"interrupt -rc 0 -crash 0 -net 0",
		"interrupt -rc 0 -pt 0",
		"steer",
		"steercancel"+none+" -crash 1 -max 20000000",
		"conf1",
		"conf1 -att 1 -unack 1",
		"confearly -att 1",
		"confirm"+none,
		"confirm"+none+" -crash 1 -max 20000000",
		"foureyes"+none,
		"foureyesplan"+none,
		"confplan"+none+" -crash 1",
		"confcancel"+none+" -crash 1",
		"conftwo"+none+" -max 12000000",
		"conftwo"+none+" -crash 1 -max 24000000",
		"parallel -rc 0 -net 0",
		"parallel -crash 0 -net 0",
		"parallel -crash 0 -rc 0",
		"parallel -att 1",
		"parallel -att 1 -rc 0 -pt 1",
		"parallel -att 1 -rc 0 -dup 1",
		"parcancel -att 1 -net 0",
		"parcancel -att 1 -rc 0",
		"parcancel -att 1 -crash 0 -rc 0 -net 0 -pt 1",
		"two -crash 2 -unack 1 -noise 3",
		"twocancel"+none+" -crash 1 -noise 2",
		"tool -pt 0 -dup 0 -noise 1",
		"cancel"+none+" -crash 1 -rc 1 -noise 2",
		"conf1 -crash 0 -noise 1",
		"retain",
		"two -crash 1 -ckpt 3 -purge 3",
		"retaintool -att 1 -stale 1",
		"retainconf"+none+" -max 20000000",
		"conf1 -crash 1 -att 1 -net 0 -ckpt 1 -purge 1",
		"confearly"+none+" -ckpt 1 -purge 1",
		"foureyesplan"+none+" -ans 1 -ckpt 1 -purge 1",
		"twocancel"+none+" -crash 1 -ckpt 1 -purge 1",
		"twotool"+none+" -crash 1 -rc 1 -ckpt 1 -purge 1",
		"redelivered -ckpt 1 -purge 1",
		"poison -ckpt 1 -purge 1",
		"two -crash 1 -unack 1 -noise 2 -ckpt 1 -purge 1",
		"delete",
		"deletetwo -ckpt 2",
		"deletetwo"+none+" -stale 1",
		"deletetool"+none+" -crash 1 -rc 1 -pt 1",
		"deleteconf"+none+" -ans 0 -crash 1",
		"deleteconf"+none+" -ckpt 0 -purge 0",
		"pausetwo",
		"pausetool"+none+" -crash 1 -rc 1",
		"pausetool"+none+" -att 2 -net 1",
		"pauseconf -ans 0 -att 1",
	)
}

func sound(lines ...string) (runs []Run) {
	for _, line := range lines {
		runs = append(runs, Run{Line: line, Want: OK})
	}
	return runs
}

// Broken returns runs of every mutation in the smallest worlds that expose it.
func Broken() []Run {
	const (
		ranAfterAll = "the result says that it did not run, but it ran"
		late        = "an effect began after its call was closed"
		dropped     = "an acked cause still has an effect"
		abandoned   = "a turn is open, every cause is acked, and no core works on it"
		wrongTarget = "a cancel or an answer hit something that began after it"
		unaudited   = "an answer was acked and is not audited"
		unheld      = "a turn is open and no core must drive it"
		unfoldable  = "the log alone does not fold to the state of archive and log"
		starts      = "a deleted session has a turn or a queued input"
		paused      = "a paused session has started something"
		retained    = none + " -ckpt 1 -purge 1 -bug "
	)
	return []Run{
		{"two" + none + " -bug ackEarly", Wedge, ""},
		{"conf1" + none + " -bug noToken", Violation, abandoned},
		{"twocancel" + none + " -bug noToken", Violation, abandoned},
		{"twocancel" + none + " -bug noPos", Violation, wrongTarget},
		{"confplan" + none + " -bug noPos", Violation, wrongTarget},
		{"conf1" + none + " -bug refuseSilently", Violation, unaudited},
		{"confplan" + none + " -bug refusalFrees", Violation, unheld},
		{"foureyes" + none + " -bug onePersonTwice", Violation, "an effect without the approval of two people"},
		{"foureyesplan" + none + " -ans 1 -bug firstFrees", Violation, "parked without a stored timer"},
		{"conf1" + none + " -crash 1 -bug ackTimerLate", Wedge, ""},
		{"conf1" + none + " -bug volatileTimer", Wedge, ""},
		{"conf1" + none + " -bug expiryByOrder", Violation, "an approval after expiry was accepted"},
		{"conf1" + none + " -bug staleNoop", Violation, dropped},
		{"twocancel" + none + " -bug staleNoop", Violation, dropped},
		{"two" + none + " -bug lagDeleted", Violation, dropped},
		{"cancel" + none + " -bug cancelNoAsk", Violation, ranAfterAll},
		{"interrupt" + none + " -bug cancelNoAsk", Violation, ranAfterAll},
		{"cancel" + none + " -rc 1 -bug 503never", Violation, ranAfterAll},
		{"tool" + none + " -rc 1 -bug 503never", Violation, ranAfterAll},
		{"tool" + none + " -pt 1 -bug instantUnknown", Violation, late},
		{"cancel" + none + " -pt 1 -bug instantUnknown", Violation, late},
		{"tool" + none + " -bug noTomb", Violation, ranAfterAll},
		{"tool" + none + " -net 1 -dup 1 -bug refuseNoTomb", Violation, ranAfterAll},
		{"tool" + none + " -bug forget", Violation, ranAfterAll},
		{"tool" + none + " -rc 1 -bug takeoverDispatch", Violation, ranAfterAll},
		{"cancel" + none + " -att 2 -bug staleReply", Violation, ranAfterAll},
		{"two" + none + " -noise 1 -bug noiseBlocks", Wedge, ""},
		{"tool" + none + " -att 2 -bug noiseBlind", Violation, ranAfterAll},
		{"tool" + none + " -att 2 -bug noFence", Violation, ranAfterAll},
		{"tool" + none + " -crash 1 -bug poisonDeliv", Violation, "a healthy input or turn failed as poison"},
		{"redelivered" + none + " -crash 1 -bug beginAgain", Violation, "a healthy input or turn failed as poison"},
		{"redelivered" + none + " -crash 0 -bug handsBackMarked", Violation, "a healthy input or turn failed as poison"},
		{"redelivered" + none + " -crash 0 -bug countTheLiving", Violation, "a healthy input or turn failed as poison"},
		{"redelivered" + none + " -crash 1 -bug poisonUnbegun", Violation, "a healthy input or turn failed as poison"},
		{"parallel" + none + " -bug noFence", Violation, "two results for one call"},
		{"parallel" + none + " -bug firstEnds", Violation, "a turn ended with a call open"},
		{"toolprobe" + none + " -pt 1 -att 2 -bug probeNoFence", Violation, ranAfterAll},
		{"parcancel" + none + " -bug closeFirst", Violation, ranAfterAll},
		{"two" + retained + "checkpointUnfenced", Violation, unheld},
		{"two" + retained + "checkpointStale", Violation, unfoldable},
		{"two" + retained + "checkpointOpen", Violation, unheld},
		{"two" + retained + "checkpointMovesCursor", Violation, unfoldable},
		{"poison" + retained + "checkpointDropsMarks", Violation, unfoldable},
		{"two" + retained + "purgeBeyondCursor", Violation, dropped},
		{"two" + retained + "purgeToLiveCursor", Violation, unheld},
		{"two" + retained + "purgeLast", Violation, "the session's last commit was purged: earlier fences are valid again"},
		{"two" + retained + "purgeUncheckpointed", Violation, unfoldable},
		{"two" + retained + "purgeBeforeArchive", Violation, "what was purged is not in the archive"},
		{"delete" + none + " -bug purgeTombstone", Violation, "a tombstone was purged"},
		{"delete" + none + " -bug tombstoneEarly", Violation, "a tombstone of a session that is not deleted"},
		{"delete" + none + " -bug undeleteAfterTombstone", Violation, "a session with a tombstone was undeleted"},
		{"deletetwo" + none + " -bug deletedStarts", Violation, starts},
		{"deletetwo" + none + " -bug deleteKeepsQueue", Violation, starts},
		{"deletetool" + none + " -bug cancelNoAsk", Violation, ranAfterAll},
		{"pausetwo" + none + " -bug pausedStarts", Violation, paused},
		{"pausetool" + none + " -bug pausedActs", Violation, paused},
		{"pausetool" + none + " -att 2 -bug pausedRetries", Violation, paused},
		{"pausetool" + none + " -bug pausedAcks", Violation, unheld},
		{"pausetool" + none + " -bug pauseFrees", Violation, unheld},
		{"pausetool" + none + " -bug resumeKeepsDriver", Violation, unheld},
		{"steer" + none + " -bug joinQueued", Violation, "an input has two terminal events"},
		{"steer" + none + " -bug joinSilently", Wedge, ""},
		{"steer" + none + " -bug joinFrees", Violation, unheld},
	}
}
