// Package enginetest gives tests a Docker engine and the sandbox's image.
//
// It is the engine that answers, or, as root, one of the test's own: in a network
// namespace and directories of its own, so that it meets no other engine, and its
// networks and firewall rules are gone with it. The kernel stops it when the test's
// process dies; the next engine removes what it left on disk. Nothing is pulled: the
// sandbox's image is made by deploy/docker/sandbox/build.sh, out of a tar file that is
// made once per machine.
//
// Where neither can be had, the test is skipped and says so; it fails if
// SKANDHA_REQUIRE=all.
package enginetest
