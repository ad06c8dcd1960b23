package camera

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"skandha.dev/pkg/subject"
)

func TestAPictureIsForgottenWhenItIsNotFresh(t *testing.T) {
	c, ref, now := New(nil, slog.New(slog.DiscardHandler)), subject.Ref{Agent: "main", Session: "s"}, time.Now()
	if err := c.admit(ref, now); err != nil {
		t.Fatal(err)
	}
	c.keep(ref, []byte("picture"), now)
	if _, ok := c.latest(ref, now.Add(Fresh)); !ok {
		t.Error("a fresh picture is not shown")
	}
	if _, ok := c.latest(ref, now.Add(Fresh+1)); ok {
		t.Error("an old picture is shown")
	}
	c.sweep(now.Add(Fresh + 1))
	if len(c.shared) != 0 {
		t.Error("an old picture is kept")
	}
	c.keep(ref, []byte("picture"), now) // one that was on its way when the person stopped sharing
	if _, ok := c.latest(ref, now); ok {
		t.Error("a picture is kept after the person stopped sharing")
	}
}

func TestABridgeHoldsPicturesOfAFewSessions(t *testing.T) {
	c, now := New(nil, slog.New(slog.DiscardHandler)), time.Now()
	for i := range maxSessions {
		if err := c.admit(subject.Ref{Agent: "main", Session: subject.Session(fmt.Sprint(i))}, now); err != nil {
			t.Fatal(err)
		}
	}
	one := subject.Ref{Agent: "main", Session: "one"}
	if err := c.admit(one, now); err == nil {
		t.Errorf("the camera %d is accepted", maxSessions+1)
	}
	if err := c.admit(one, now.Add(Fresh+1)); err != nil {
		t.Errorf("when the others are not shared any more: %v", err)
	}
}
