// Package plugin keeps the index of memories in a storage plugin, which answers on the bus,
// in any language. The plugin stores and compares records; what they mean is decided here:
// see plugin.StorageIndex in the SDK.
//
// # Records
//
// All are in one collection, "memories" unless configured:
//
//	<agent>, m-<hash of the id>          a memory, or its removal: a record without order
//	skandha, model-<hash of the name>    the dimension of a model, in the version
//	skandha, position                    the position and an epoch, in the version
//
// The version of a memory's record holds its revision and the hashes of its text and model,
// so that a refused write says all that is needed to decide whether to try again. It ends
// with random characters: a version never comes back.
//
// # Loss
//
// The epoch is made with the first record. SetPosition fails if it has changed since the
// last call of Position, so a plugin that has lost its records while it was being filled
// never gets a position.
//
// # Failure
//
// A plugin that is absent, slow, suspended or answers wrongly is memory.ErrUnavailable, with
// the reason. A record that it refuses as invalid_argument or too_large is
// memory.ErrInvalid. Every answer is checked: a memory of another agent, of another kind or
// out of order is an error, not a hit.
package plugin
