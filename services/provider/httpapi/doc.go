// Package httpapi is what the adapters of HTTP APIs have in common: a key that never prints,
// prices, a client that follows no redirect, the bounds of an answer (its bytes on the wire,
// and the silence between two of them), names and arguments of tools and files as these APIs
// accept them, and errors of any shape as the codes of the contract, without the key.
package httpapi
