// Package conformance tries a plugin, in whatever language it is written, against a
// system of its own: the embedded bus, core, tool runner and provider, in a
// directory that is thrown away. It is what `skandha plugins test` runs.
//
// # How it looks
//
// The plugin's process is started with SKANDHA_NATS in its environment. That leads
// to a tap, one for each process, which passes everything on to the bus and notes
// what the plugin subscribes to, publishes and gets. So the suite knows who sent
// what, which the bus itself does not tell.
//
// # What is asked
//
// The plugin registers with the real core, whose leases are short here
// ([Options.Lease]). What it declares is asked by the suite itself, with the
// examples of the contract and with arguments made from the schemas of its tools:
// tools are really called. One turn is run by core. The bus is shut down and comes
// back; a second process of the plugin is started beside the first; both are told
// to end.
//
// # The outcome
//
// A [Report] lists every check with what was expected, what was seen and what to
// do. A check that needs another one that failed is skipped and says so. A plugin
// that ends by itself is started again for the checks that follow, and the check
// "stays", or the one that made it end, fails.
//
// The suite starts processes and ends them, with their process groups. Nothing is
// left when [Run] returns.
package conformance
