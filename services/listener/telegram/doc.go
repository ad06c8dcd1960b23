// Package telegram is the gateway to Telegram, by the Bot API: groups, their topics and private chats are
// sessions of an agent; see package chat.
//
// # People
//
// A person is a numeric user id, which Telegram authenticates; user names can change and count for nothing.
// Messages that are sent as a channel or an anonymous administrator have no account, and bots are programs.
//
// # Delivery
//
// Telegram's answer to sendMessage proves a message. The API has no idempotency key, and bots cannot read
// what they have sent: without an answer the outcome is unknown, and no probe resolves it. A long answer is
// several messages; if one of the later ones fails, the outcome is unknown, too.
//
// Requests for approval have buttons. A press counts as the answer of the person who pressed.
//
// # Guarantee
//
// The position in getUpdates is confirmed once everything before it is stored as inputs, so that nothing that
// people say while the gateway is away, for up to 24 hours, is lost within the rate of an account. An update
// that is repeated is one input.
//
// # Failure
//
// Only one process may call getUpdates for a bot: another one is refused by Telegram (409), and tries again.
package telegram
