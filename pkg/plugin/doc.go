// Package plugin is the contract between a plugin and the registry: what a
// plugin declares when it registers, how it keeps and gives up its lease, and
// what it is asked as a storage backend. Hooks, tools, providers and guides
// have packages of their own.
//
// A plugin sends its [Manifest] on plugin.register.<name>, a [Heartbeat] on
// plugin.heartbeat.<name> and an [Unregister] on plugin.unregister.<name>, each
// as a request; each is answered with a [Lease] or with an error reply. A lost
// answer does no harm: all three may be repeated. A plugin that stays silent for
// the lease's time is forgotten, and registers again when it comes back.
//
// The types are stated for other languages in schemas/manifest.v1.json,
// schemas/plugin and schemas/storage; a test holds the two together.
package plugin
