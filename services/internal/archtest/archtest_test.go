package archtest

import (
	"os"
	"testing"
)

// The tree that this package lies in keeps every rule.
func TestRepository(t *testing.T) {
	repo, err := Load(os.DirFS("../../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, breach := range rule.Check(repo) {
				t.Error(breach)
			}
		})
	}
}
