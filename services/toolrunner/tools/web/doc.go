// Package web has the tool http:request. It reaches the hosts that are allowed by
// name and nothing else, and of these only public addresses: an allowed name that
// resolves to this machine, to the local network or to a cloud's metadata service
// is refused when the connection is made, whatever DNS said before. Redirects are
// not followed, because policy judges a call by the URL that it names. No proxy is taken from the environment.
package web
