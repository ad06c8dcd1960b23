// Package hookscript runs the commands of a hooks.json, in the format of Claude Code and Open
// Plugins, as hooks of two plugins; see [Script.Handlers].
//
//	PreToolUse        before_act: deny, ask a person, other arguments
//	PostToolUse       after_act: withhold the result
//	UserPromptSubmit  after_sense: end the input, add context for the model
//	Stop              after_reflect: runs, without effect
//
// A command gets JSON on standard input, with the tools' names and arguments in the words of that
// format ([Tools]). Exit code 0 passes, or its JSON decides; 2 denies, with standard error as the
// reason.
//
// # Failure
//
// Everything else denies: another exit code, a signal, a command that is missing, that takes
// longer than its timeout or writes more than [MaxOutput], and JSON that cannot be read or says
// something unknown. A decision to allow passes, and permits nothing that a policy refuses. If
// several commands match, all run at once: deny comes before ask, ask before allow, and two that
// want other arguments, not the same, deny.
//
// Commands run as the user of this process, without a sandbox, each in its own process group, which is
// killed when the command has ended or its time is up; see package program.
package hookscript
