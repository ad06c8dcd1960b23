// Package conformance tests a plugin, written in any language, against a temporary
// system: an embedded bus, core, tool runner and provider, in a directory that is
// deleted afterwards. It is what `skandha plugins test` runs.
//
// # Observation
//
// The plugin's process is started with SKANDHA_NATS in its environment. That leads
// to a tap, one for each process, which forwards everything to the bus and records
// what the plugin subscribes to, publishes and receives. So the suite knows which
// process sent what, which the bus itself does not report.
//
// # Checks
//
// The plugin registers with the real core, whose leases are short here
// ([Options.Lease]). The suite itself sends requests for everything that the plugin
// declares, with the examples of the contract and with arguments made from the schemas
// of its tools: tools are really called. Core runs one turn. The bus is shut down and
// comes back; a second process of the plugin is started beside the first; both are
// stopped.
//
// # Result
//
// A [Report] lists every check with what was expected, what was seen and what to
// do. A check that needs a failed one is skipped, with the reason. A plugin
// that ends by itself is started again for the checks that follow, and the check
// "stays", or the one that made it end, fails.
//
// The suite starts processes and ends them, with their process groups. No process is
// left when [Run] returns.
package conformance
