package transporttest

import (
	"testing"

	"skandha.dev/services/uibridge/schematest"
)

// Schema checks bodies against schemas/ui/<name>.json: what it returns fails the test
// with one that is not valid.
func Schema(t testing.TB, name string) func(body []byte) {
	return func(body []byte) {
		t.Helper()
		if err := schematest.Check(name, body); err != nil {
			t.Error(err)
		}
	}
}
