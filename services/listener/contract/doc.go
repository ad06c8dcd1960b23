// Package contract defines what a listener is: the interface that every kind
// implements (stdin, webhook, WebSocket, cron, and yours), the input that it emits,
// and the ways in which an input can fail.
//
// A listener receives messages from outside and passes each to an [Emitter], which
// stores it as an input of a session, on
// agent.<agent>.<session>.sense.input.<listener's name>.
//
// # Guarantee
//
// [Emitter.EmitInput] returns a [Receipt] only once the log has acknowledged the
// input; from then on it ends in exactly one terminal event. An input that has an
// id is accepted once, no matter how many times it is emitted: within two minutes
// (the log's duplicate window) the same id and text are the same message with the
// same sequence; later, or with another text, a repetition is stored and ends as
// turn.failed {duplicate_of}, as long as the session remembers the id (its last
// 1,024). A sender that got no receipt therefore sends the input again with the
// same id.
//
// # Failure
//
// An error of EmitInput is [ErrInvalid] (change the input), [ErrRefused] (it is not
// stored, and something must be fixed first) or [ErrUnavailable] (it may or may not
// be stored: send it again with the same id). [ErrOverloaded] and [ErrNoRoom] are
// also ErrUnavailable, and mean that it is not stored.
//
// # Testing
//
// Package listenertest is the suite that every listener passes.
package contract
