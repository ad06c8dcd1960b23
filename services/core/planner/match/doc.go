// Package match finds the tools that fit a request.
package match
