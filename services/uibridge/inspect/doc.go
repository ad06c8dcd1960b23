// Package inspect is what people look with: sessions, tools, plugins, hooks and
// executors as core knows them, a session's turns, one turn as a waterfall, and the
// artifacts that tools left.
//
// It asks core on service.core.{tools,sessions,session,status,hooks,plugins,plugin},
// one request and one answer each, and reads the log and the object store of
// artifacts; it writes nothing. What core alone has types for is passed on as it
// came. Plugins are the exception to looking: pluginAction has core suspend, resume
// or unload one, for those who may administer. Parameters and answers of all methods
// are stated in schemas/ui/methods and schemas/ui/results.
//
// A principal is told of the agents that he may reach, and of no other. All work is
// bounded, in time, in commits and in bytes, and where a bound cut something off the
// answer says so. When core or the bus does not answer, the caller is told
// [contract.CodeUnavailable]; asking again is safe.
package inspect
