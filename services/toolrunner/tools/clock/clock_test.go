package clock

import (
	"encoding/json"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
)

func TestNowInATimeZone(t *testing.T) {
	now := time.Date(2026, 3, 28, 23, 30, 0, 0, time.UTC)
	for zone, want := range map[string]string{
		"":                 `{"local":"2026-03-28T23:30:00Z","timezone":"UTC","unix":1774740600,"utc":"2026-03-28T23:30:00Z","weekday":"Saturday"}`,
		"Europe/Berlin":    `{"local":"2026-03-29T00:30:00+01:00","timezone":"Europe/Berlin","unix":1774740600,"utc":"2026-03-28T23:30:00Z","weekday":"Sunday"}`,
		"America/St_Johns": `{"local":"2026-03-28T21:00:00-02:30","timezone":"America/St_Johns","unix":1774740600,"utc":"2026-03-28T23:30:00Z","weekday":"Saturday"}`,
	} {
		if got := at(now, zone); !got.Success || string(got.Data) != want {
			t.Errorf("%q: got %s %v", zone, got.Data, got.Error)
		}
	}
}

func TestAnUnknownTimeZoneIsAnError(t *testing.T) {
	for _, zone := range []string{"Mars/Olympus", "../../etc/passwd", "Local", "/etc/localtime"} {
		if got := at(time.Now(), zone); got.Success || got.Error.Code != tool.CodeFailed {
			t.Errorf("%q: got %s", zone, got.Data)
		}
	}
}

func TestTheToolAnswersTheCurrentTime(t *testing.T) {
	before := time.Now().Unix()
	got := Now().Run(t.Context(), tools.Call{Args: json.RawMessage(`{"timezone":"Asia/Tokyo"}`)})
	var data struct {
		Unix int64 `json:"unix"`
	}
	if err := json.Unmarshal(got.Data, &data); err != nil || data.Unix < before || data.Unix > time.Now().Unix() {
		t.Fatalf("got %s (%v)", got.Data, err)
	}
}
