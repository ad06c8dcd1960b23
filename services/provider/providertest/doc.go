// Package providertest is the conformance suite of adapters: what core relies on,
// whatever the vendor. The model behind the adapter under test must obey
// [skandha.dev/services/provider/offline.TestRules], as a server of package
// openaitest does; a new adapter brings a server of its own wire protocol.
package providertest
