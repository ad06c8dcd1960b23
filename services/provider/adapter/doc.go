// Package adapter is the contract between the provider service and what asks a
// language model: one interface, the limits of an answer, and the way errors of
// any kind become the contract's. It speaks no NATS, so that an adapter depends
// on its vendor's API alone. Package providertest holds every adapter against it.
package adapter
