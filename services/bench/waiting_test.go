package bench

import "testing"

// B17 is measured without the time that the server takes to forget blocks of the log, so that its figures mean little.
func TestWaitingSessionsAreMeasured(t *testing.T) {
	brief(t)
	rests, kept := logRests, idsKept
	logRests, idsKept = 0, 0
	t.Cleanup(func() { logRests, idsKept = rests, kept })
	rows, err := Run(t.Context(), Options{Quick: true, Dir: t.TempDir(), Only: []string{"B17"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 5 {
		t.Errorf("%d rows, want 5", len(rows))
	}
	for _, r := range rows {
		t.Logf("%-4s %-60s %10.3f %-10s %s %v", r.ID, r.What, r.Ours, r.Unit, r.Budget, r.OK)
		if r.Unit == "sessions" && r.Ours != 0 {
			t.Errorf("%+v", r)
		}
	}
}
