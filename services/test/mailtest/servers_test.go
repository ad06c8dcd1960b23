package mailtest_test

import (
	"strings"
	"testing"

	"skandha.dev/services/test/mailtest"
)

func TestTheServersDeliver(t *testing.T) {
	s := mailtest.Start(t)
	s.Deliver(mailtest.Alice, mailtest.Agent, "From: alice@example.org\nSubject: hello\n\nhi\n")
	if got := s.Await(mailtest.Agent, "", 1)[0]; !strings.Contains(got, "Subject: hello") {
		t.Errorf("the letter is %q", got)
	}
}
