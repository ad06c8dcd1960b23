// Package chat is what the gateways to chat networks share: who may talk and approve, which
// session a conversation is, the requests for approval that people answer in place, and the
// form of the messages. It is no listener itself.
//
// # Sessions
//
// A room, or a thread of it, is a session, and so is the conversation with each person. The id is
// the one that configuration gives the room, or is derived from the names, with a part of their
// hash, so that two conversations never share one.
//
// # People
//
// A person is known by the account as the server has authenticated it, never by a name that
// people choose. What an account in allow says is a user's words. What others say is ignored or,
// with others: data, an input with the origin chat:<network>/<account>, which the model sees as
// data. Messages of programs are ignored unless allow names their account.
//
// # Approvals
//
// A request for approval is shown with a code. "yes CODE" or "no CODE reason", from an account
// that may approve there, is stored as the answer. Everything else about the code is answered with
// an explanation and has no effect: another account, another room, an unknown or expired code, or
// a request that was answered elsewhere. A request is stored in the bucket gateways before it is
// shown, so that it can be answered after a restart.
//
// # Subjects
//
// Produced: $KV.gateways.<listener>.… and, to learn whether a request still waits,
// service.core.session. Inputs and answers are stored by the emitter.
//
// # Guarantee
//
// [Hub.Handle] returns without an error once the log has acknowledged the input. [Hub.Take] is for
// networks that do not repeat a message: it accepts a bounded number, handles them in order, and
// replies to the sender when one was not stored.
//
// # Failure
//
// Each account may send [Config].PerMinute messages; what is beyond is dropped, and the sender is
// notified once.
package chat
