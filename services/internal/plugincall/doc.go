// Package plugincall asks plugins on behalf of executors: a tool runner asks for
// tools, the provider service for answers of models.
//
// # Subjects
//
// Consumed: reply.<identity>.*.<instance>.*, the answers. Produced: the request, with the header
// Skandha-Deadline, on <subject>.<instance> of one replica or, if none listens there,
// on the plugin's own subject, tool.<plugin>.<tool>, llm.<plugin>.generate or
// storage.<plugin>.<verb>; and service.core.status, to see whether a core is up.
//
// # Guarantee
//
// A request goes to one replica. It is sent again only if that is safe: to the same
// replica, if it listens on <subject>.<instance> and thereby promises to remember its
// requests; to any replica, if the request is repeatable or no copy of it was
// delivered. [ErrNotAsked] means that no replica got the request, which the server or
// this process knows for certain. After any other error a replica may have got it. The
// first answer under the plugin's name counts. Later answers, and answers under
// another name, are dropped.
//
// # Failure
//
// A replica that remembers is asked again after each reconnect, and from time to time,
// so that an answer that was lost with a connection arrives soon after the reconnect.
// When the replica is gone, a repeatable request goes to another one.
//
// If all replicas that may have the request have lost their lease, the wait ends after
// a grace period with [ErrLost]. The period counts only while a core answers: cores
// renew leases, and without a core all leases seem to end. If replicas do not
// remember, it is unknown which one has the request. The wait then lasts until the
// context ends, even if this process loses its connection, unless the request is
// repeatable.
//
// See schemas/adr/0008 and 0017.
package plugincall
