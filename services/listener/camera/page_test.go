package camera_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/camera"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/natstest"
)

func TestACameraOfThePageRecordsOnlyWhileItIsShared(t *testing.T) {
	r := newRig(t, paged(), nil).start()
	alone := func() bool {
		is, h := r.Media(), r.Health()
		return is.On && !is.Recording && r.Off() == "" && h.State == contract.StateOK && strings.Contains(h.Reason, "nobody shares a camera")
	}
	natstest.Eventually(t, "it is on, and sees nobody", alone)
	if err := send(natstest.Context(t), r.bus, r.Listener, picture(t, false)); err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "it records", func() bool { return r.Media().Recording && r.Health().Reason == "" })
	r.Later(time.Minute)
	if !alone() {
		t.Errorf("it records after the person stopped sharing: %+v", r.Health())
	}
}

func (r *rig) sharing(what string, want func(senses.Sharing) bool) {
	r.t.Helper()
	natstest.Eventually(r.t, what, func() bool {
		is, err := senses.SharingOf(natstest.Context(r.t), r.bus, listenertest.Ref)
		return err == nil && want(is)
	})
}

func TestItsMasksAndItsSwitchHoldForThePage(t *testing.T) {
	cfg := paged()
	cfg.Masks = []camera.Mask{{X: 0, Y: 0, Width: 0.5, Height: 1}}
	r := newRig(t, cfg, nil).start()
	r.sharing("the masks", func(is senses.Sharing) bool {
		return is.Off == "" && reflect.DeepEqual(is.Masks, []senses.Mask{{Width: 0.5, Height: 1}})
	})
	r.turn(false)
	if err := r.OnStop(natstest.Context(t)); err != nil {
		t.Fatal(err)
	}
	r.sharing("also while it does not run", func(is senses.Sharing) bool {
		return strings.Contains(is.Off, "camera yard is off: switched off by ann") && len(is.Masks) == 1
	})
	r.turn(true)
	film := camera.Config{Source: ffmpeg.Source{File: "/nowhere.mp4"}, Config: cfg.Config} // it was changed in the configuration
	other, err := camera.New("yard", film, camera.Deps{Bus: r.bus, Logger: natstest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.OnStart(natstest.Context(t), r.gate); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.OnStop(natstest.Context(t)) }()
	r.sharing("none", func(is senses.Sharing) bool { return len(is.Masks) == 0 && is.Off == "" })
}
