// Package registry admits plugins and ends their leases. Every core runs a
// [Registrar]; any of them answers, and none leads.
//
// # What it reads and writes
//
//	plugin.register.*    plugin.Manifest   -> plugin.Lease
//	plugin.heartbeat.*   plugin.Heartbeat  -> plugin.Lease
//	plugin.unregister.*  plugin.Unregister -> plugin.Lease
//	service.core.plugins nothing           -> []PluginInfo
//	service.core.plugin  PluginRequest     -> PluginInfo
//	bucket plugins       manifest.<plugin>, lease.<plugin>.<instance>
//
// All are requests, answered as responder "core". Any one core answers, in the queue
// group "core"; heartbeats are heard by every core, and the first answer counts.
//
// # What is promised
//
// Admission is transactional: each write of a manifest is fenced against all
// others, so that what was decided on the registry as it was still holds when it
// is stored, whichever core decides. Of two manifests that do not go together one
// is admitted. A plugin's names (its own, those of its tools, providers, listeners,
// sensors and guides) are its own from its manifest until its last lease has
// ended; a first lease is fenced against the manifest it was granted for.
//
// A manifest that is refused changes nothing, and the error lists all that is
// wrong with it, each by its path.
//
// All requests may be repeated. A heartbeat renews a lease and never makes one.
//
// A lease is ended when this core has followed the registry without interruption
// for the lease's time and saw no renewal: see schemas/adr/0007. A heartbeat that
// comes at the same moment wins.
//
// # When something fails
//
// While the bus is away nothing is decided and no lease is ended. A bucket that
// was lost is made anew, empty; plugins are told to register again by their next
// heartbeat. A core that dies between a manifest and its lease leaves a plugin that
// is released by any other core about a second later.
//
// # What cannot be enforced without accounts
//
// The registry decides who is asked, and under which name. It cannot keep a client
// of the same account from subscribing to another plugin's subjects (it would have
// to guess the queue group, which is the plugin's name, and would get some of its
// calls), from sending another's heartbeat or unregistration, from answering on
// reply.<other plugin>.…, from publishing causes as another's listener, or from
// writing the bucket. Credentials that allow a plugin its own subjects alone do.
package registry
