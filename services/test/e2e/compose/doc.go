// Package compose holds docker-compose.yml to what it says: the system comes up
// from images, answers a person, scales, survives the death of its core, and
// leaves nothing behind.
//
// The test uses the Docker engine that answers, or, as root, starts one of its
// own (see enginetest). The images are those of make compose-up on a machine without a
// registry (deploy/docker/images.sh).
package compose
