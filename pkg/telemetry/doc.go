// Package telemetry sets up logs and carries traces across the bus.
//
// Logs are [log/slog]. Traces are W3C Trace Context in the headers of messages:
// written in lower case (traceparent, tracestate, baggage), which is what the
// specification demands and other languages look for, and read in any case,
// because some clients write "Traceparent".
//
// The package depends on the OpenTelemetry API and nats.go alone. Without an SDK
// a message still carries a valid traceparent: the one that came in with the
// context, or a fresh random one.
package telemetry
