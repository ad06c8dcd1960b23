// Package providertest is the conformance suite of adapters: it tests what core relies on,
// for any vendor. The model of the adapter under test must obey the orders of package
// scripted, as a server of package openaitest does; a new adapter needs a test server for
// its wire protocol.
package providertest
