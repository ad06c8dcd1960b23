// Package access authenticates the UI bridge's requests, and refuses all others. It does
// not use the bus.
//
// # Authentication
//
// A token is a secret with a name and rights. The token called owner has all rights: it is
// configured, or generated at the first start and kept in the data directory, readable only
// by its owner. Programs send a token in Authorization: Bearer. (A page of another origin
// cannot set headers on WebSockets; it sends the token as the subprotocol
// skandha.bearer.<token> beside skandha.v1.) A browser exchanges a token, or a one-time
// code, for a login in two halves. One half is a cookie: HttpOnly, SameSite=Strict, named
// after the port, Secure if the browser uses TLS according to the connection, a configured
// proxy or the configured URL. The other half is a key that the login's answer carries in
// the header Skandha-Key. The page keeps the key in its storage and sends it in the same
// header, or to a WebSocket as the subprotocol skandha.key.<key>: a browser sends cookies
// to every port of a host, so a cookie is not enough for a login. A key derived from the
// token signs both halves, so a login survives a restart of the bridge and becomes invalid
// with the token. A login is renewed while it is used and expires after seven days without
// use (ui.cookie). Logouts are stored. A token in a URL is refused.
//
// To revoke a token, remove it from the configuration (for the owner's: remove its file,
// and a new token is generated) and restart the bridge. All its logins become invalid, too.
//
// A one-time code has sixteen characters, is valid for five minutes and works once.
//
// An address that sends more than ten wrong tokens or codes may send one more every six
// seconds; further ones are refused (429). A configured token of fewer than 32 characters
// might be guessed, so meanwhile it is refused from that address even if it is right.
// Codes, the generated owner's token, and tokens of 32 characters or more cannot be
// guessed: wrong guesses by others never lock them out.
//
// # Accepted requests
//
// A request must be for a host name of the bridge (421: DNS rebinding), without a secret in
// its URL (400); if it is from a page, from the bridge's own page or a configured origin
// (403); with JSON, or what [Deps].Body says, if it has a body (415); within the limits (429, with Retry-After;
// approvals and cancels have a separate limit); and below /v1/, authenticated (401). What a
// browser sends by itself, with the cookie, must carry its origin unless it only reads. An
// accepted request has its [contract.Principal] in its context, and its secrets are
// removed. Every refusal is a [contract.Error], is logged without secrets, and counted.
// Refusals over a limit are logged once per [logburst.Window], with their number.
//
// Connections without an authenticated request are limited (ui.limits.anonymous): beyond
// the limit, the oldest one of the address that has the most is closed. A login's body must
// arrive within five seconds.
//
// # End of requests
//
// The context of a request ends with a [contract.Error] as its cause when the token
// expires, the browser logs out or the bridge stops, so that open connections end.
// [Access.Limit] refuses further calls on a connection that has not ended yet.
package access
