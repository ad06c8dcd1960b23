// Package form has the form of everything that the driver asks of a Docker engine: containers, volumes
// and filters, made of constants and a few values. It does no I/O.
//
// The driver makes requests with it. The engine proxy reads them with it: [Read] and [ReadVolume] take the
// values out of a request's body, check them, make the request again from these values alone, and refuse a
// body that differs in anything. So the two cannot drift apart, and what the proxy passes on is what this
// package has made, not what the client has sent.
package form
