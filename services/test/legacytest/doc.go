// Package legacytest tests the plugin skandha-provider-gemini-legacy as it is used: as a
// process that joins a whole system over the bus, against a server of the Gemini API.
package legacytest
