package mqtt

import "testing"

// A probe that connects late must still be able to wait for the copy: else it never says that the
// broker did not get the message.
func TestAProbeHasTheTimeThatItNeeds(t *testing.T) {
	if need := probeWait + connectWait + settle; need > timeout {
		t.Errorf("a probe may need %s, and has %s", need, timeout)
	}
}
