// Package toolrunner runs tools: it is the executor that turns a tool call into
// an effect and its one result.
//
// # Subjects
//
// It is an executor of kind runner (see services/internal/executor): it answers on
// runner.<instance>, announces its tools and slots on announce.runner.<instance>
// and listens on discover.runner. Large results are stored in the object store
// "artifacts".
//
// # Guarantee
//
// A call's attempt is carried out at most once. Arguments are checked against the
// tool's schema first; what does not fit did not run, and the result lists every
// error. Data above [MaxData] is cut in the middle and kept whole as an artifact,
// named in the result's metadata.
//
// # Failure
//
// A tool that panics has failed; one that hangs is answered for at its deadline
// and keeps its slot. Files are reached below the workspace alone, hosts only if
// they are allowed by name. The end of the context drains: see executor.Serve.
package toolrunner
