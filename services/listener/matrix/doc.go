// Package matrix is the gateway to Matrix, by its client-server API: rooms, threads and direct chats
// are sessions of an agent; see package chat.
//
// # People
//
// A person is a user id, such as @ann:example.org, as the homeservers authenticate it. A room that the
// configuration does not name is a direct chat if one other person is in it, and nobody else is
// invited. Invitations to one are accepted from those who may talk. Messages of the type m.notice are a
// program's.
//
// # Delivery
//
// A message is an m.notice with a transaction id that is derived from the delivery's key, and an id in
// its content. The server's answer proves it. A probe looks for the id in the room's latest messages, and
// if it is not there, repeats the request under the same transaction id, which servers recognize for a
// while; after that the message was not sent.
//
// # Guarantee
//
// The position in /sync is stored once everything before it is stored as inputs, so that nothing that
// people say while the gateway is away is lost within the rate of an account, and event ids are input
// ids, so that nothing is an input twice. A gap in a room's timeline is read up to 1,000 messages back.
//
// # Failure
//
// Rooms with end-to-end encryption cannot be read; the log says so. Requests are repeated with growing
// pauses, and as late as the server asks for.
package matrix
