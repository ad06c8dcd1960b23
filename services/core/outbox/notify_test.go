package outbox_test

import (
	"strings"
	"testing"

	"skandha.dev/services/core/outbox"
)

func TestTheAddressOfThePageIsForEverybody(t *testing.T) {
	for page, want := range map[string]string{
		"https://agent.example.org": "", "http://agent.example.org:8080/base/": "", "": "",
		"agent.example.org": "notify.page is", "https://agent.example.org/#/main": "notify.page is",
		"https://agent.example.org/?token=HUSH": "notify.page is", "https://ann:HUSH@agent.example.org/": "notify.page has a user",
	} {
		err := outbox.Notify{Page: page}.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", page, err)
		}
		if err != nil && strings.Contains(err.Error(), "HUSH") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}
