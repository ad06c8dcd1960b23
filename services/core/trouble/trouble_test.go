package trouble

import (
	"fmt"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
)

// Many sessions in trouble do not flood the log: those beyond the list count as one.
func TestTroublesBeyondTheListAreLoggedOnce(t *testing.T) {
	all := New()
	logged := 0
	for range 3 {
		for i := range maxTroubles + 50 {
			if all.Note(subject.Ref{Agent: "a", Session: subject.Session(fmt.Sprint("s", i))}, coreapi.TroubleNewer, "new") {
				logged++
			}
		}
	}
	if logged != maxTroubles+1 {
		t.Errorf("%d are logged, want %d", logged, maxTroubles+1)
	}
	if !all.Note(subject.Ref{}, coreapi.TroubleDamaged, "the log itself") || len(all.All()) != maxTroubles+1 {
		t.Error("the log itself must be listed, however many sessions are in trouble")
	}
}
