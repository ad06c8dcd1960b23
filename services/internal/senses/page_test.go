package senses_test

import (
	"reflect"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/test/natstest"
)

func TestOffWinsAndAllMasksHold(t *testing.T) {
	s := natstest.Start(t)
	ctx, j := natstest.Context(t), natstest.Connect(t, s)
	natstest.EnsureStreams(t, j)
	ref := subject.Ref{Agent: "main", Session: "pg"}
	left, top := senses.Mask{Width: 0.5, Height: 1}, senses.Mask{Width: 1, Height: 0.5}
	put := func(listener subject.Writer, w *senses.Watcher) {
		t.Helper()
		if err := senses.PutWatcher(ctx, j, listener, w); err != nil {
			t.Fatal(err)
		}
	}
	is := func(off string, masks ...senses.Mask) {
		t.Helper()
		got, err := senses.SharingOf(ctx, j, ref)
		if err != nil || !strings.Contains(got.Off, off) || (off == "") != (got.Off == "") || !reflect.DeepEqual(got.Masks, masks) {
			t.Errorf("%+v, %v, want %q %v", got, err, off, masks)
		}
	}
	is("")
	put("other", &senses.Watcher{Agent: "main", Session: "elsewhere", Masks: []senses.Mask{left}, StartOff: true})
	is("")
	put("desk", &senses.Watcher{Agent: "main", Session: "pg", Masks: []senses.Mask{left}})
	put("wide", &senses.Watcher{Agent: "main", Session: "pg", Masks: []senses.Mask{top}, StartOff: true})
	is("camera wide is off: off until somebody switches it on", left, top)
	for _, c := range []struct {
		listener subject.Writer
		on       bool
		off      string
	}{{"wide", true, ""}, {"desk", false, "camera desk is off: switched off by ann"}, {"desk", true, ""}} {
		if _, err := senses.Turn(ctx, j, c.listener, c.on, "ann"); err != nil {
			t.Fatal(err)
		}
		is(c.off, left, top)
	}
	put("wide", nil)
	put("wide", nil)
	is("", left)
	if _, err := j.Bucket(journal.BucketListeners).Put(ctx, "page.bad", []byte("{"), journal.Fence{}); err != nil {
		t.Fatal(err)
	}
	if _, err := senses.SharingOf(ctx, j, ref); err == nil || !strings.Contains(err.Error(), "page.bad") {
		t.Errorf("%v, want an error: the entry may be of this session", err)
	}
}
