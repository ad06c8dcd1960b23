// Package enginetest gives tests a Docker engine and the sandbox's image.
//
// It uses the engine that is running or, as root, starts a private one. That one has a
// separate network namespace and separate directories, so that it does not affect other
// engines, and its networks and firewall rules disappear with it. The kernel stops it when
// the test's process dies; the next engine removes what it left on disk. Nothing is pulled:
// deploy/docker/sandbox/build.sh builds the sandbox's image from a tar file that is created
// once per machine.
//
// If neither engine is available, the test is skipped with a message, or fails if
// SKANDHA_REQUIRE=all.
package enginetest
