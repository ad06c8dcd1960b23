package decide_test

import (
	"strings"
	"testing"
	"time"

	"skandha.dev/services/core/decide"
)

// What an approval is bound to survives snapshots and refolding.
func TestGrantsSurviveSnapshotsAndRefolding(t *testing.T) {
	w := wary(t)
	w.calls("read", `{"path":"drafts/<&>.txt"}`, "read", `{"path":"drafts/ü.txt"}`)
	w.approve("c1", w.wide("c1"))
	w.reload()
	w.same(w.state, w.rebuild(), "live", "rebuilt")
	data, at, rev := w.snapshot()
	for _, forged := range []string{
		strings.Replace(string(data), `"path":"drafts/*"`, `"path":"secret/*"`, 1),
		strings.Replace(string(data), `"grants":[`, `"grants":[{"tool":"write","hash":"00"},`, 1),
	} {
		if forged == string(data) {
			t.Fatalf("no grant in %s", data)
		}
		if _, err := decide.FromSnapshot([]byte(forged), ref, at, rev); err == nil {
			t.Error("a snapshot with another grant is believed")
		}
	}
}

// Many grants do not make deciding slower: the digest covers only their chain.
func TestGrantsDoNotWeighOnTheDigest(t *testing.T) {
	w := wary(t)
	w.calls("write", `{"text":"a"}`)
	w.approve("c0", w.wide("c0"))
	w.succeed("c0", `1`)
	if strings.Count(string(mustJSON(w.state)), w.state.GrantChain) != 1 {
		t.Fatal("the chain is not in the state")
	}
	w.now = w.now.Add(time.Second)
	w.final("done")
	if len(w.state.Grants) != 1 {
		t.Fatal("a grant ends with its turn")
	}
}
