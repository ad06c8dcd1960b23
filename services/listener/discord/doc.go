// Package discord is the gateway to Discord, by its gateway (WebSocket) and its REST API, version 10:
// channels, threads and direct messages are sessions of an agent; see package chat.
//
// # People
//
// A person is a user id, which Discord authenticates. Messages of bots and webhooks are a program's.
//
// # Delivery
//
// A message has a nonce that is derived from the delivery's key, with enforce_nonce: Discord sends it once
// however many times it is asked for, for some minutes. The answer proves it. A probe within two minutes repeats
// the request. Later it reads the channel: a message that is not there was not sent.
//
// Requests for approval have buttons. A press counts as the answer of the person who pressed.
//
// # Guarantee
//
// The position in the gateway's session is stored once everything before it is stored as inputs. A new
// connection, also of another process, resumes the session, and Discord repeats what was missed, for some
// minutes; what people say while the gateway is away for longer is lost. Message ids are input ids.
//
// # Failure
//
// A connection that is lost, refused or silent is made again, with growing pauses. The bot needs the privileged
// intent "message content".
package discord
