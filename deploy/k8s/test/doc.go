// Package test holds the Helm chart to its promises: what it renders is what Kubernetes accepts, every
// pod is restricted, every reference has its object, network policies let through what they must and
// nothing else, and every environment variable and metric is one of the services'. The servers of the
// bus and Redis run with the rendered configuration.
//
// It is a separate module, outside of the workspace, because Helm's engine brings the client of
// Kubernetes: `make chart` runs it.
package test
