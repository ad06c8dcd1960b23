package secret_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/internal/secret"
)

func TestSecretsComeFromWhereTheyAreSaidToBe(t *testing.T) {
	t.Setenv("SKANDHA_TEST_SECRET", "of the environment")
	t.Setenv("SKANDHA_TEST_EMPTY", "")
	dir := t.TempDir()
	for name, text := range map[string]string{"full": " of the file\n", "empty": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for s, want := range map[string]string{
		"env:SKANDHA_TEST_SECRET": "of the environment", "file:" + filepath.Join(dir, "full"): "of the file",
		"itself": "itself",
	} {
		if got, err := secret.Read(s); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", s, got, err, want)
		}
	}
	for s, want := range map[string]string{
		"": "empty", "env:SKANDHA_TEST_EMPTY": "not set", "file:" + filepath.Join(dir, "empty"): "empty",
		"file:" + filepath.Join(dir, "none"): "no such file",
	} {
		if got, err := secret.Read(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %q, %v; want %q", s, got, err, want)
		}
	}
}
