package providertest_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"skandha.dev/services/test/providertest"
)

var update = flag.Bool("update", false, "write the table into services/provider/README.md")

const (
	page  = "../../provider/README.md"
	begin = "<!-- the table of services/test/providertest; go test ./test/providertest -update -->\n"
	end   = "<!-- end of the table -->"
)

// The table on the page is what the adapters' tests run.
func TestTable(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	table, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", page)
	}
	want := providertest.Table()
	t.Log("\n" + want)
	switch {
	case table == want:
	case *update:
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table in %s is out of date: go test ./test/providertest -update", page)
	}
}
