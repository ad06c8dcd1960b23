// Package adapter defines the contract between the provider service and the code that asks
// a language model: one interface, the limits of an answer, and how errors of any kind
// become the contract's. It does not use NATS, so that an adapter depends
// only on its vendor's API. Package providertest tests every adapter against it.
package adapter
