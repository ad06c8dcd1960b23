package bench

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func TestAnUnknownRowIsAUsageError(t *testing.T) {
	var c Command
	_, err := kong.Must(&c).Parse([]string{"--only", "Z9,B4"})
	if err == nil || !strings.Contains(err.Error(), `unknown row "Z9"`) || !strings.Contains(err.Error(), "B1, B2, B3") {
		t.Errorf("--only Z9,B4: %v", err)
	}
}
