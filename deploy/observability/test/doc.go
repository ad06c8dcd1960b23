// Package test runs the collector of the Compose profile observability, as the code of OpenTelemetry's own distribution
// of the same version, with the file that the profile gives it: a trace that is sent to it arrives where Jaeger would be.
//
// It is a separate module, outside of the workspace, because the collector brings many others: `make chart` runs it.
package test
