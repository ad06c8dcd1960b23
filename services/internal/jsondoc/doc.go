// Package jsondoc takes values and texts out of JSON documents from outside, by JSON pointers
// (RFC 6901) and Go templates that a configuration names.
package jsondoc
