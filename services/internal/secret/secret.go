// Package secret reads secrets that a configuration refers to, so that the file need not
// contain them, and hides those in texts for people outside.
package secret

import (
	"fmt"
	"os"
	"strings"
)

// Read returns the secret that s names: env:NAME is the value of an environment
// variable, file:PATH the content of a file without the spaces around it, and
// anything else is the secret itself. An error never quotes the secret.
func Read(s string) (string, error) {
	if name, ok := strings.CutPrefix(s, "env:"); ok {
		v := os.Getenv(name)
		if v == "" {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		return v, nil
	}
	if path, ok := strings.CutPrefix(s, "file:"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		v := strings.TrimSpace(string(b))
		if v == "" {
			return "", fmt.Errorf("the file %s is empty", path)
		}
		return v, nil
	}
	if s == "" {
		return "", fmt.Errorf("it is empty; write env:NAME, file:PATH or the secret")
	}
	return s, nil
}
