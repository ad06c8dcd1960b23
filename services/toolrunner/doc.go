// Package toolrunner runs tools: it is the executor that turns a tool call into
// an effect and its one result.
//
// # Subjects
//
// It is an executor of kind runner (see services/internal/executor): it answers on
// runner.<instance>, announces its tools and slots on announce.runner.<instance>
// and listens on discover.runner. Large results are stored in the object store
// "artifacts". It follows the registry of plugins (services/internal/registry) and
// has their tools run by requests to tool.<plugin>.<tool>, answered on
// reply.<plugin>.<instance>.<n> (services/internal/plugincall). With a NotesPlugin
// it keeps notes by requests to storage.<plugin>.<verb>.
//
// # Guarantee
//
// A call's attempt is carried out at most once. Arguments are checked against the
// tool's schema first; what does not fit did not run, and the result lists every
// error. Data above [result.MaxData] is cut in the middle and kept whole as an artifact,
// named in the result's metadata.
//
// A plugin's tool is announced while the plugin is active, and called at most once
// per attempt. What is said of such a call is true: it is refused if nobody got it;
// outcome_unknown if somebody may have and the answer is none, unreadable or lost
// with the plugin; timeout if the deadline passed while all who may have it were
// there. Of a plugin's failure the codes count that say something of a call that ran.
//
// # Failure
//
// A tool that panics has failed; one that hangs is answered for at its deadline
// and keeps its slot. Files are reached below the workspace alone, hosts only if
// they are allowed by name. A plugin's tool that cannot be offered (its name is
// taken, its pool is not here, the announcement has no room) is left out with a
// warning. A call of a plugin goes on when the plugin leaves; it cannot be stopped,
// only left alone, and then has "stopped" as its answer. The end of the context drains: see executor.Serve.
package toolrunner
