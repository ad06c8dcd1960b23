// Package contract holds the Go types to the contract in schemas/, in both
// directions; it has tests and nothing else.
//
// What the tests keep true:
//
//   - every JSON field of every contract type is a property of its schema and the
//     other way round, required where Go always writes it, with the same type, and
//     with the same closed set of values;
//   - every valid example decodes into its Go type and comes back without loss,
//     every invalid one is refused;
//   - what Go writes, generated at random, is valid;
//   - every subject that package subject builds is a channel of asyncapi.yaml, and
//     every channel is built there;
//   - every event type has a schema, a message, a channel and examples;
//   - every notification of the UI bridge has a schema, and so has every method; its
//     parameters are those that its handlers read, by name, place, type and bound;
//   - asyncapi.yaml is sound AsyncAPI 3.0, and what schemas/README.md shows works.
//
// A new contract type, event type or subject makes a test fail until the
// contract states it; types_test.go is the list to add it to.
package contract
