// Package plugins is core's side of its plugins. It serves the registry, keeps the hooks of
// active plugins in their order, and gives agents the guides that plugins offer.
//
// Consumes: the registry of plugins, requests of plugins to be registered. Produces:
// requests to the hooks and guides of plugins.
//
// Order: a change sets the hooks before the tools, so that no tool is called unguarded. A
// decision takes one [Pinned] snapshot, and sees the same plugins throughout.
//
// Failure: while a plugin that the configuration requires is missing, calls at its point
// are denied. A plugin that keeps failing is suspended, and agents are notified at on_error.
// So is one whose listener has the name of a configured one.
//
// Testing: with whole cores, in package shell (plug_test.go, hooks_test.go, guides_test.go).
package plugins
