package transporttest

import (
	"testing"

	"skandha.dev/services/test/schematest"
)

// Schema returns a function that fails the test if a body is not valid against
// schemas/ui/<name>.json.
func Schema(t testing.TB, name string) func(body []byte) {
	return func(body []byte) {
		t.Helper()
		if err := schematest.Check(name, body); err != nil {
			t.Error(err)
		}
	}
}
