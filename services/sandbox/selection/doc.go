// Package selection selects the sandbox driver: Docker if an engine answers and has the
// image, else bubblewrap if it works here, else none, with an error that names what to
// install.
//
// It selects when the first sandbox is needed, and again when the selected driver can no
// longer create sandboxes, so it notices an engine that starts later or stops. A driver that
// the configuration names is never replaced by another.
package selection
