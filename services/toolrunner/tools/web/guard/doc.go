// Package guard keeps the tools of the web away from addresses that they must not reach. An
// [AllowList] names the hosts; a connection of [Dial] is made to a public address only,
// unless a second list names its host. The address is checked when the connection is made, so
// a name that resolves to this machine, to the local network or to a cloud's metadata service
// is refused, whatever an earlier DNS lookup returned, and so is every redirect to one.
//
// A check that fails is an error of the request: nothing was sent.
package guard
