// Package slack is the gateway to Slack, by Socket Mode and the Web API: channels, threads and direct
// messages are sessions of an agent; see package chat.
//
// # People
//
// A person is a user id, which Slack authenticates. Messages of apps are a program's, with the
// bot id as account, also when they are sent with a person's token.
//
// # Delivery
//
// Slack's answer to chat.postMessage proves a message. The API has no idempotency key, but a message carries
// the delivery's id as metadata, and a probe looks for it in the conversation's history: a message that is there
// was sent; one that is not there once the request has ended was not.
//
// Requests for approval have buttons. A press counts as the answer of the person who pressed.
//
// # Guarantee
//
// An envelope is acknowledged once its message is stored as an input. Slack repeats what is not acknowledged,
// for a while, and a repeated message is one input. What people say while the gateway is away for longer is
// lost.
//
// # Failure
//
// A connection that is lost, refused or silent is made again, with growing pauses; Slack asks for a new one
// every few hours.
package slack
