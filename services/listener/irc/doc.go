// Package irc is the gateway to IRC networks (RFC 1459, RFC 2812, IRCv3): channels and direct
// messages are sessions of an agent; see package chat.
//
// # People
//
// Whom a message is from, with identify:
//
//   - account (default): the services account, from the message tag account, which the server adds
//     (IRCv3 account-tag). On a server without it nobody has an account, and nobody may talk.
//   - host: user@host as the server shows it. It identifies a person only if the server does, for
//     example by PAM, ident or a cloak of its services.
//   - nick: the nickname. Anybody may take one that is free: only for servers that guard nicknames.
//
// A direct message is delivered after WHOIS has shown that the nickname still belongs to the person.
//
// # Delivery
//
// A message leaves as PRIVMSG lines and a PING. The PONG, and no error before it, proves that the
// server has handled the lines. If the connection is lost before, the outcome is unknown, and as
// IRC servers keep no messages, a probe knows more only if this process has seen the PONG since.
//
// # Guarantee
//
// IRC repeats nothing: what people say while the gateway is away is lost, as for every client. A
// message that was received and not stored is answered with a notice. Messages of the server's
// history (IRCv3 server-time) are ignored.
//
// # Failure
//
// A connection that is lost, refused or silent is made again, with growing pauses. CTCP, notices,
// and messages of the gateway itself are ignored. A channel that the gateway was removed from is
// joined again after a while.
package irc
