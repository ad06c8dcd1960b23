// Package signals sends the traces, metrics and logs of a process by OTLP, if the environment asks for it with the
// standard variables of OpenTelemetry:
//
//	OTEL_EXPORTER_OTLP_ENDPOINT           where to, such as http://localhost:4318; also _TRACES_, _METRICS_, _LOGS_
//	OTEL_EXPORTER_OTLP_PROTOCOL           http/protobuf (default) or grpc
//	OTEL_{TRACES,METRICS,LOGS}_EXPORTER   otlp (default), console or none; for metrics also prometheus, at /metrics
//	OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_SDK_DISABLED, …
//
// Without any of the first and the third, nothing is sent. Metrics are collected as well if the process serves /metrics.
//
// SKANDHA_COLLECTOR is the address of a collector that may come and go, as that of docker-compose.yml does: traces are
// sent there while it accepts connections.
//
// Spans are made with the global tracer provider of OpenTelemetry. [As] gives a span an id that other processes can
// compute, too, so that their spans are its children before it was sent.
//
// Failure: what cannot be delivered is dropped, and the log says so once a minute. No work ever waits for it.
package signals
