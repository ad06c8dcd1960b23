// Package identities keeps who from outside may connect to the bus, and informs the server.
//
// Consumed: bucket identities, which has one entry per identity, and the server's own messages
// $SYS.ACCOUNT.*.CONNECT and DISCONNECT and $SYS.SERVER.*.CLIENT.AUTH.ERR, over a separate connection to its
// account. Produced: changes
// of the bucket, and $SYS.REQ.CLAIMS.UPDATE. Package shell answers service.admin.identities by
// [Identities.Do]; the registrar asks for charters.
//
// Guaranteed: an invitation is in the bucket before its credentials are given out. A revocation is in
// the bucket before the server knows it, and has an effect before it is confirmed: the server closes
// the connections. Each core gives the server all accounts when it starts and when the server is
// back, so that a server with an empty directory learns them again. Credentials are not kept.
//
// A client that the server does not let in learns no cause. The cause is in core's log, once in ten minutes, and with
// the identity whose credentials it showed.
//
// Failure: while the server does not answer, changes fail with unavailable and may be repeated.
package identities
