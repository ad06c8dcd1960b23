// Package registry is every service's view of the plugins: a [View] of the bucket
// "plugins", the snapshot computed from it ([Compute], pure), and the order in which
// plugins are asked ([Order], [Explain], pure).
//
// # Subjects
//
// Consumed: the stream KV_plugins, by a separate consumer for each view, with the keys
// manifest.<plugin> ([Record]) and lease.<plugin>.<instance> ([LeaseRecord]). Nothing
// is produced; only cores write (services/core/registrar).
//
// # Guarantee
//
// A [Snapshot] never changes, and is the same in every process that has read the
// bucket up to the same point. A plugin is present with its manifest and at least one
// lease with the hash of that manifest, or not at all. Changes are seen in the bucket's
// order and none is missed; a snapshot may include several.
//
//	gone       no lease
//	draining   all its replicas get no new calls
//	suspended  a core or an operator suspended it: its tools and providers are not
//	           offered, and those of its hooks that deny on error deny
//	waiting    a dependency is missing, waits itself, or drains; a suspended one
//	           counts as present
//	active     none of these
//
// The first of these that applies is the state.
//
// # Failure
//
// While the bus is disconnected, or there is no bucket, the last snapshot stays. If
// the view may have missed changes, it reads the whole bucket again and replaces its
// content at once. Unreadable entries of the bucket are logged and ignored. If there is
// a cycle in the order, which admission refuses, one of its plugins waits.
package registry
