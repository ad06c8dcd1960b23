// Package registry is what every service knows of the plugins: a [View] of the
// bucket "plugins", what follows from it ([Compute], pure), and the order in which
// plugins are asked ([Order], [Explain], pure).
//
// # Consumed
//
// The stream KV_plugins, by a consumer of the view's own: keys manifest.<plugin>
// ([Record]) and lease.<plugin>.<instance> ([LeaseRecord]). Nothing is produced;
// cores alone write (services/core/registry).
//
// # What is promised
//
// A [Snapshot] never changes, and is the same in every process that has read the
// bucket so far. A plugin is there with its manifest and at least one lease with
// the hash of that manifest, or not at all. Changes are seen in the bucket's
// order, none is missed; a snapshot may take in several.
//
//	gone       no lease
//	draining   all its replicas get no new calls
//	suspended  a core or an operator says so: its tools and providers are not
//	           offered, and a hook of it that denies on error denies
//	waiting    a dependency is not there, waits itself, or drains; a suspended one
//	           counts as there
//	active     none of these
//
// The first of these that holds is the state.
//
// # When something fails
//
// While the bus is away, or there is no bucket, the last snapshot stays. When
// following is in doubt the bucket is read again, as a whole, and replaces what
// was known at once. What cannot be read in the bucket is logged and is as if it
// were not there. A cycle in the order, which admission refuses, has one plugin of
// it wait.
package registry
