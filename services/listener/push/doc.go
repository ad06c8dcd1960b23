// Package push is the gateway that pushes messages over HTTP, as ntfy and servers like it accept
// them: to phones and desktops. It has no inputs.
//
// # Wire
//
// Each message is a POST to the URL and the topic (To). The body is the text. The headers are Title,
// Click with the link, Priority and Tags, as ntfy reads them, Authorization if there is a token, and
// Idempotency-Key with the message's key, for servers that honour it.
//
// # Guarantee
//
// A message is accepted when the server answers 2xx. When no answer arrives, its outcome is unknown.
// A server that is declared idempotent gets the message again under the same key; otherwise it
// stays unknown, and the outbox lists the message for a person.
//
// # Failure
//
// 429 and 5xx are tried again, with the pause that Retry-After names; other answers are permanent. After
// three messages in a row that the server has not answered, or with 429 or 5xx, the gateway is degraded
// until it deals with one; and while three wait for an answer for more than some seconds.
package push
