// Package registrar admits plugins and ends their leases. Every core runs a
// [Registrar]. Any of them can answer a request; there is no leader.
//
// # Subjects and buckets
//
//	plugin.register.*    plugin.Manifest   -> plugin.Lease
//	plugin.heartbeat.*   plugin.Heartbeat  -> plugin.Lease
//	plugin.unregister.*  plugin.Unregister -> plugin.Lease
//	service.core.plugins nothing           -> []PluginInfo
//	service.admin.plugin PluginRequest     -> PluginInfo
//	bucket plugins       manifest.<plugin>, lease.<plugin>.<instance>
//
// All are requests, answered by the responder "core". One core answers, in the queue
// group "core". Heartbeats are received by every core, and the first answer counts.
//
// # Guarantee
//
// Admission is transactional: each write of a manifest is fenced against all
// others, so that a decision still holds when it is stored, whichever core makes
// it. Of two manifests that conflict, one is admitted. A plugin owns its names (its
// own name, and those of its tools, providers, listeners, sensors and guides) from
// the time its manifest is stored until its last lease has ended. A first lease is
// fenced against the manifest for which it was granted.
//
// A refused manifest changes nothing. The error lists everything that is wrong with
// it, with the path of each fault.
//
// All requests may be repeated. A heartbeat renews a lease but never creates one.
//
// A core ends a lease after it has followed the registry without interruption for
// the lease's time and seen no renewal: see schemas/adr/0007. A heartbeat that
// arrives at the same moment wins.
//
// # Failure
//
// While the bus is disconnected, a core decides nothing and ends no lease. A bucket
// that was lost is created again, empty; plugins learn from the answer to their next
// heartbeat that they must register again. If a core dies between storing a manifest
// and its lease, another core releases the plugin about a second later.
//
// # What cannot be enforced without accounts
//
// The registry decides which plugins are asked, and under which names. It cannot keep
// a client of the same account from subscribing to another plugin's subjects (it
// would have to guess the queue group, which is the plugin's name, and would get some
// of its calls), from sending another plugin's heartbeat or unregistration, from
// answering on reply.<caller>.<other plugin>.…, from publishing causes as another plugin's
// listener, or from writing the bucket. Credentials that restrict a plugin to its own
// subjects prevent all of these.
package registrar
