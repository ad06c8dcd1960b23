package push

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/listener/contract"
)

func TestAServerThatHangsIsShown(t *testing.T) {
	g, err := New("phone", Config{URL: "https://push.example.org"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	now := began
	g.now = func() time.Time { return now }
	var all []func()
	for range failuresShown {
		all = append(all, g.sends(&http.Request{}))
		now = now.Add(time.Second)
	}
	if h := g.Health(); h.State != contract.StateOK {
		t.Errorf("messages wait for some seconds: %+v", h)
	}
	now = now.Add(slow)
	if h := g.Health(); h.State != contract.StateDegraded || !h.Since.Equal(began.Add(slow)) ||
		!strings.Contains(h.Reason, "has not answered several messages for 5s") {
		t.Errorf("messages wait for too long: %+v", h)
	}
	if all[0](); g.Health().State != contract.StateOK {
		t.Errorf("one is answered: %+v", g.Health())
	}
}
