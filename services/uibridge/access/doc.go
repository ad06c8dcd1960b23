// Package access is the front door of the UI bridge: it decides which requests come
// from whom, and keeps all others out. It knows no bus.
//
// # Who
//
// A token is a secret with a name and rights. One, called owner, has all rights: it is
// configured, or made at the first start and kept in the data directory, for its
// owner's eyes alone. Programs show a token in Authorization: Bearer (a page of
// another origin, whose WebSockets cannot, as the subprotocol skandha.bearer.<token>
// beside skandha.v1). A browser trades a token, or a one-time code, for a login in two
// halves. One is a cookie: HttpOnly, SameSite=Strict, named after the port, Secure if the
// browser came by TLS, which a configured proxy says, or the configured URL. The other is a
// key that the login answers in the header Skandha-Key. The page keeps it in its storage and
// shows it in the same header, or to a WebSocket as the subprotocol skandha.key.<key>: a
// browser sends cookies to every port of a host, so a cookie alone is no login. A key
// derived from the token signs both halves, so a login lives through a restart of the bridge
// and dies with the token. It is renewed while it is used, ends after seven days without
// use (ui.cookie), and its logout is remembered. A token in a URL is refused.
//
// A token is revoked by taking it out of the configuration (the owner's: by removing its
// file, and a new one is made) and restarting the bridge; all that it let in are out.
//
// A one-time code has sixteen characters, lives five minutes and opens once.
//
// An address that shows more than ten wrong tokens or codes may show another every six
// seconds; more are refused (429). A configured token of fewer than 32 characters might be
// guessed, so it is refused there meanwhile even if it is right. Codes, the owner's token
// that was made here, and tokens of 32 characters or more cannot be guessed: nobody's wrong
// guesses lock them out.
//
// # What is let in
//
// A request must be for a host name of the bridge (421: DNS rebinding), without a
// secret in its URL (400), from a page of the bridge's own or a configured origin if it
// is from a page (403), with JSON if it has a body (415), within the limits (429, with
// Retry-After; approvals and cancels have one of their own), and below /v1/ from
// somebody (401). What a browser does by itself, with
// the cookie, must say its origin unless it only reads. What is let in bears its
// [contract.Principal] in its context; its secrets are taken out of it. Every refusal
// is a [contract.Error], is logged without secrets, and counted. Those over a limit are
// logged once per [logburst.Window], with their number.
//
// Connections on which nobody has been let in yet are bounded (ui.limits.anonymous): beyond
// that, the oldest of the address that has the most is closed. A login's body must come
// within five seconds.
//
// # What ends
//
// The context of a request ends with a [contract.Error] as its cause when the token
// expires, the browser logs out or the bridge stops, so that open connections end.
// [Access.Limit] refuses what comes over a connection that has not ended yet.
package access
