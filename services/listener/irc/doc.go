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
// server has handled the lines. IRC servers keep no messages, so what became of the lines of a
// connection that is lost before is known only if somebody was there: with watch (default), a second
// connection of the gateway, NICK_, is in the channels and says nothing.
//
// A delivery to a channel is watched if both connections are in it, on the same server, which has
// answered a PING of the watcher before the first line: the watcher then has read all that came
// before. A server handles the lines of a connection in order, and relays its QUIT last. So:
//
//   - The watcher has seen all lines: success, as with a PONG.
//   - It has seen the QUIT of the sender, and none of the lines before it: not_run. Nothing of that
//     connection can arrive later.
//   - It has seen some of the lines: the outcome is unknown, and the error says how many. The rest is
//     not sent alone: a crash in between would repeat the first ones.
//   - It has seen no QUIT, or was itself cut off, or out of the channel, before: unknown. While the
//     server holds the lost connection open, until its own time limit, a later probe knows more.
//
// When the server itself dies, both connections end without a QUIT. What the watcher has read by
// then was relayed. What it has not read may have been relayed to others: unknown.
//
// When the gateway is killed, what the watcher saw dies with it. Two marks on this machine remain,
// see package effect: an attempt that has not passed to its first line is not_run, and one whose
// PONG or lines were seen is a success. In between, for one round trip to the server, the outcome
// is unknown.
//
// A direct message reaches one person, and nothing can watch it: if the connection is lost before the
// PONG, the outcome is unknown. IRCv3 echo-message and labeled-response would prove no more than the
// PONG does, as they come on the same connection right before it.
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
