// Package foreigntest runs plugins and listeners in other languages against a
// live system, for tests.
//
// [Start] brings up a whole system on an embedded bus that listens on loopback,
// with the offline provider and its rules for tests. [System.Run] starts a program
// that joins it by SKANDHA_NATS, as a person would. [Need] finds an interpreter and
// [NodeModules] what Node's programs import; a test for which one is missing is
// skipped, and fails if the environment says SKANDHA_REQUIRE=all.
package foreigntest
