package timeline

import (
	"encoding/json"
	"testing"

	"skandha.dev/services/test/schematest"
)

// stated fails the test with an answer that schemas/ui/results does not allow.
func stated(t *testing.T, method string, answer any) {
	t.Helper()
	b, err := json.Marshal(answer)
	if err == nil {
		err = schematest.Check("results/"+method, b)
	}
	if err != nil {
		t.Error(err)
	}
}
