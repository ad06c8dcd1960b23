package mqttclient_test

import (
	"os/exec"
	"testing"

	"skandha.dev/services/test/mosquittotest"
)

// hash replaces the passwords of a file by their hashes.
func hash(t *testing.T, users string) {
	t.Helper()
	mosquittotest.Need(t, "mosquitto")
	if out, err := exec.CommandContext(t.Context(), "mosquitto_passwd", "-U", users).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
