// Package xmpp is the gateway to XMPP (RFC 6120, RFC 6121): multi-user chats (XEP-0045) and direct
// chats are sessions of an agent; see package chat.
//
// # People
//
// A person is a bare JID, such as ann@example.org, which the servers authenticate. In a room the
// gateway sees it only if the room shows JIDs to everybody, or to moderators and it is one; else
// nobody has an account there.
//
// # Delivery
//
// A message has an id that is derived from the delivery's key (XEP-0359). In a room it is sent when
// the room has reflected it; directly, when the server has answered a ping that followed it. A probe
// connects anew, which ends an older connection of the same resource, so that nothing can follow from
// there, and looks for the id in the archive (XEP-0313): a message that is there was sent, and one
// that is not was not and never will be, if the room is persistent and on the gateway's server. Without an archive the
// outcome stays unknown.
//
// # Guarantee
//
// Messages have the ids of the archive, so that a repeated one is one input. What people say in a room
// while the gateway is away is lost; direct messages are kept by the server.
//
// # Failure
//
// A connection that is lost, refused or silent is made again, with growing pauses, and rooms are
// joined again. A stanza has at most 256 KiB.
package xmpp
