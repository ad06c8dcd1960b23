// Package telemetry sets up logs and carries traces across the bus.
//
// Logs use [log/slog]. Traces use W3C Trace Context in the headers of messages. The keys are
// written in lower case (traceparent, tracestate, baggage), as the specification requires and
// other languages expect, and read in any case, because some clients write "Traceparent".
//
// The package depends only on the OpenTelemetry API and nats.go. Without an SDK, a message
// still carries a valid traceparent: that of the context, or a new random one.
package telemetry
