// Package web provides the tools that reach the web: http:request, web:search and web:fetch.
// None is offered unless the configuration names what it may reach.
//
// # http:request
//
// It reaches only hosts that are allowed by name, and of these only public addresses (package
// guard). Redirects are not followed, because policy judges a call by the URL that it names.
// No proxy is taken from the environment.
//
// # web:search and web:fetch
//
// See packages search and page. The data of each of their results names the pages that it is
// from, in "sources"; see package source.
package web
