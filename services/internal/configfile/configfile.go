// Package configfile reads the one configuration file of all services. Each service
// decodes the section it owns, strictly: what it does not know there is an error that
// names the line.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"gopkg.in/yaml.v3"
)

// Read reads the file at path and parses it; without a path it gives the zero T. Errors
// name the file.
func Read[T any](path string, parse func(file []byte) (T, error)) (T, error) {
	var zero T
	if path == "" {
		return zero, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return zero, fmt.Errorf("reading configuration: %w", err)
	}
	c, err := parse(b)
	if err != nil {
		return zero, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Decode decodes YAML; an empty file changes nothing. A field that into does not have
// is an error that names its line.
func Decode(file []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(file))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	return nil
}
