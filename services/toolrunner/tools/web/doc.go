// Package web provides the tool http:request. It reaches only hosts that are allowed by
// name, and of these only public addresses: an allowed name that
// resolves to this machine, to the local network or to a cloud's metadata service
// is refused when the connection is made, whatever an earlier DNS lookup returned.
// Redirects are not followed, because policy judges a call by the URL that it names. No
// proxy is taken from the environment.
package web
