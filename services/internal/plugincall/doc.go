// Package plugincall asks plugins on behalf of executors: a tool runner asks for
// tools, the provider service for answers of models.
//
// # Subjects
//
// Consumed: reply.*.<instance>.*, the answers. Produced: the request on the
// plugin's own subject, tool.<plugin>.<tool> or llm.<plugin>.generate, with the
// header Skandha-Deadline; and service.core.status, to see whether a core is there.
//
// # Guarantee
//
// A request is sent at most once. What [Asker.Ask] says of it is true:
// [ErrNotAsked] means that no replica got it, which the server or this process
// knows for certain. In every other case one may have got it. The first answer
// under the plugin's name counts; a second one, a late one and one under another
// name are dropped.
//
// # Failure
//
// A plugin whose replicas have all lost their lease since they were asked is
// waited for no longer than a grace, [ErrLost]. That counts only while a core
// answers: leases are renewed by cores, and without one all of them seem to end.
// When one of several replicas dies, the others may have the request, so that it
// is waited for until the context ends. The same holds when this process loses its
// connection: the answer may still come. Only a request that says so
// ([Request].Repeatable) is given up then.
package plugincall
