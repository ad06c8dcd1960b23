// Package proxy is a filter between the docker driver and a Docker engine. It alone holds the engine's socket,
// which is as good as root on the host, and passes on only the requests that the driver makes. It is not on
// the bus: a client that commands the sandbox service by the bus commands sandboxes, and nothing else of the engine.
//
// # What passes
//
// routes.go lists the requests: method, path and query. Everything else is refused with 403, a Docker-style
// message that names the rule, and a line in the log.
//
//   - Bodies are those of package form: the proxy takes a few values out of them, checks them, and makes the
//     body again. The engine gets a request that the proxy has written, path and query included, and nothing
//     that a client has: no header, no duplicate name, no other spelling.
//   - The image is the configured one, by the id that its name had when the proxy looked.
//   - A container is named by its whole id, and a volume by the driver's form of a name. Both must have the
//     configured owner's label at the engine. Ids do not change hands, so those of containers are remembered;
//     volumes are looked up each time.
//   - Lists and events are those of the owner. The engine's description is reduced to what the driver uses.
//   - Only attaching to a container takes over the connection. Bytes then pass in both directions, and each
//     direction ends by itself.
//
// # What it does not prevent
//
// Services with the same owner share containers and volumes, so one that is taken over can end the sandboxes
// of the others, and run what it likes in sandboxes, within the configured limits. Package installations have
// a network; Config.Install bounds what they do.
//
// # Failure
//
// If the engine does not answer, so does the proxy: 503, and it is not ready. When the proxy ends, its
// connections end, and the engine ends the sandboxes as if the service had died. The service then connects again.
package proxy
