// Package toolrunner runs tools: it is the executor that carries out tool calls and
// returns one result for each.
//
// # Subjects
//
// It is an executor of kind runner (see services/internal/executor/engine): it answers on
// runner.<instance>, announces its tools and slots on announce.runner.<instance>
// and listens on discover.runner. Large results are stored in the object store
// "artifacts". It follows the registry of plugins (services/internal/registry) and
// runs their tools by requests to tool.<plugin>.<tool>, answered on
// reply.<caller>.<plugin>.… (services/internal/plugincall). With a NotesPlugin
// it keeps notes by requests to storage.<plugin>.<verb>.
//
// # Guarantee
//
// A call's attempt is carried out at most once. Arguments are first checked against
// the tool's schema; if they are invalid, the tool is not run and the result lists every
// error. Data above [result.MaxData] is cut in the middle and kept whole as an artifact,
// named in the result's metadata.
//
// The tools for skills are announced while there is a skill, in the workspace or in SkillsDir; see
// package skills. The notes of the project, AGENTS.md in the workspace, are announced beside the
// tools; see package agentsmd. Both are read again every two seconds.
//
// A plugin's tool is announced while the plugin is active, and called at most once
// per attempt. The result of such a call is always true: it is refused if no plugin
// instance got it; outcome_unknown if one may have got it and the answer is missing,
// unreadable or lost with the plugin; timeout if the deadline passed while all
// instances that may have got it were up. Of a plugin's failure, only the codes that
// describe a call that ran are kept.
//
// The tools of MCP servers are announced while a server is connected; see package mcp. Their calls are
// as true: refused if they were not sent, outcome_unknown if there is no answer.
//
// # Failure
//
// A tool that panics has failed; the runner answers for one that hangs at its deadline,
// and its slot stays taken. Files are reached only below the workspace, hosts only if
// they are allowed by the configuration. A plugin's tool that cannot be offered (its name is
// taken, this runner does not have its pool, the announcement is full) is left out with
// a warning. A plugin's call continues when the plugin leaves; it cannot be stopped, only
// abandoned, and then has "stopped" as its answer. When the context ends, the runner
// drains: see executor.Serve.
package toolrunner
