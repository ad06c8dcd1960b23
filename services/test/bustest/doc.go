// Package bustest holds the tests of pkg/bus and of internal/journal. They live in this
// module because they run against a real server, which plugin authors who import pkg/bus
// do not need.
package bustest
