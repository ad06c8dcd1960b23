package subject

import (
	"fmt"
	"strings"
)

// PluginVerb is the kind of a plugin's request to the registry.
type PluginVerb string

// The registry's verbs.
const (
	Register   PluginVerb = "register"
	Heartbeat  PluginVerb = "heartbeat"
	Unregister PluginVerb = "unregister"
)

// Registry returns the subject of a plugin's requests to the registry: plugin.<verb>.<plugin>.
func Registry(v PluginVerb, p Plugin) string { return "plugin." + string(v) + "." + string(p) }

// ParseRegistry parses plugin.<verb>.<plugin>.
func ParseRegistry(s string) (PluginVerb, Plugin, error) {
	t := strings.Split(s, ".")
	if len(t) != 3 || t[0] != "plugin" {
		return "", "", fmt.Errorf("%w: %q is not a subject of the registry", ErrInvalidSubject, clip(s))
	}
	switch v := PluginVerb(t[1]); v {
	case Register, Heartbeat, Unregister:
		p, err := Parse[Plugin](t[2])
		if err != nil {
			return "", "", fmt.Errorf("%w: %w", ErrInvalidSubject, err)
		}
		return v, p, nil
	}
	return "", "", fmt.Errorf("%w: %q is not a verb of the registry", ErrInvalidSubject, clip(t[1]))
}

// BucketKey returns the subject of a key in a bucket: $KV.<bucket>.<key>. The key may contain
// wildcards.
func BucketKey(bucket, key string) string { return "$KV." + bucket + "." + key }

// BucketChanges matches the subjects on which the server announces that a key of a bucket has changed, without
// the value: watch.<bucket>.<key>.
func BucketChanges(bucket string) string { return "watch." + bucket + ".>" }

// AllManifests matches the keys of all manifests in the bucket of plugins.
const AllManifests = "manifest.*"

// ManifestKey returns the key of a plugin's manifest: manifest.<plugin>.
func ManifestKey(p Plugin) string { return "manifest." + string(p) }

// LeaseKey returns the key of a replica's lease: lease.<plugin>.<instance>.
func LeaseKey(p Plugin, i Instance) string { return "lease." + string(p) + "." + string(i) }

// ParsePluginKey parses a key of the bucket of plugins; i is empty for a manifest.
func ParsePluginKey(key string) (p Plugin, i Instance, err error) {
	t := strings.Split(key, ".")
	switch {
	case len(t) == 2 && t[0] == "manifest" && Valid(t[1]):
		return Plugin(t[1]), "", nil
	case len(t) == 3 && t[0] == "lease" && Valid(t[1]) && Valid(t[2]):
		return Plugin(t[1]), Instance(t[2]), nil
	}
	return "", "", fmt.Errorf("%w: %q is not a key of a plugin", ErrInvalidSubject, clip(key))
}
