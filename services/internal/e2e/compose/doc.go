// Package compose holds docker-compose.yml to what it says: the system comes up
// from images, answers a person, scales, survives the death of its core, and
// leaves nothing behind.
//
// The test uses the Docker engine that answers, or, as root, starts one of its
// own (see enginetest). All images are built FROM scratch out of binaries of this
// machine, so no registry is needed: the services and NATS by go build, Redis and
// what the health checks call as installed, with the libraries that they load.
package compose
