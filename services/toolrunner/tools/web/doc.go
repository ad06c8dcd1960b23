// Package web provides the tool http:request. It reaches only hosts that are allowed by name,
// and of these only public addresses (package guard). Redirects are not followed, because policy
// judges a call by the URL that it names. No proxy is taken from the environment.
package web
