package camera

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"strings"
	"testing"
	"time"

	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/senses"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// gray is a picture of one brightness, with a white square.
func gray(level uint8, square image.Rectangle) *image.Gray {
	img := image.NewGray(image.Rect(0, 0, 320, 240))
	draw.Draw(img, img.Bounds(), image.NewUniform(color.Gray{Y: level}), image.Point{}, draw.Src)
	draw.Draw(img, square, image.White, image.Point{}, draw.Src)
	return img
}

var (
	nothing = image.Rectangle{}
	square  = image.Rect(100, 80, 160, 140)
)

func encoded(tb testing.TB, img image.Image) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, nil); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// film shows pictures to a tracker, four a second.
type film struct {
	*tracker
	at     time.Time
	events []event
}

func newFilm(cfg Motion, masks ...Mask) *film {
	return &film{tracker: newTracker(bounds.Filled(cfg), masks), at: noon}
}

func (f *film) show(n int, img image.Image) {
	for range n {
		f.events = append(f.events, f.see(brightness(img), []byte{byte(len(f.events))}, f.at)...)
		f.at = f.at.Add(250 * time.Millisecond)
	}
}

func TestNothingMoves(t *testing.T) {
	f := newFilm(Motion{})
	f.show(100, gray(128, nothing))
	f.show(1, gray(128, square)) // one picture is none
	for i := range 200 {         // the evening comes
		f.show(1, gray(uint8(128-i/2), nothing))
	}
	if len(f.events) != 0 {
		t.Errorf("%+v", f.events)
	}
}

func TestMotionIsOneEvent(t *testing.T) {
	f := newFilm(Motion{})
	f.show(10, gray(128, nothing))
	began := f.at.Add(250 * time.Millisecond) // the second picture in a row
	f.show(8, gray(128, square))
	if len(f.events) != 0 {
		t.Fatal("it is perceived before two seconds have passed")
	}
	for i := range 40 {
		f.show(1, gray(128, square.Add(image.Pt(i, 0))))
	}
	if len(f.events) != 1 {
		t.Fatalf("%d events, want one", len(f.events))
	}
	e := f.events[0]
	if e.kind != motion || !e.began.Equal(began) || len(e.shots) != 2 || e.area < 0.04 || e.area > 0.06 {
		t.Errorf("%+v, want motion of the square", e)
	}
	if want := "Camera yard saw motion: 5.1% of the picture changed, at 2026-11-26 12:00:02 UTC."; e.text("yard") != want {
		t.Error(e.text("yard"))
	}
	f.show(30, gray(128, nothing))
	f.show(20, gray(128, square))
	if len(f.events) != 2 {
		t.Errorf("%d events, want a second one after it was quiet", len(f.events))
	}
}

func TestAShortEventIsPerceivedAtItsEnd(t *testing.T) {
	f := newFilm(Motion{After: time.Minute})
	f.show(10, gray(128, nothing))
	f.show(3, gray(128, square))
	f.show(19, gray(128, nothing))
	if len(f.events) != 0 {
		t.Fatalf("%+v", f.events)
	}
	f.show(2, gray(128, nothing))
	if len(f.events) != 1 {
		t.Errorf("%d events", len(f.events))
	}
}

func TestAChangeOfTheSceneIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		to   uint8
		want string
	}{"covered": {5, "it is dark now"}, "lit": {250, "very bright now"}, "turned": {200, "moved or uncovered"}} {
		f := newFilm(Motion{})
		f.show(10, gray(100, nothing))
		f.show(60, gray(c.to, nothing))
		if len(f.events) != 1 || f.events[0].kind != scene || !strings.Contains(f.events[0].text("yard"), c.want) {
			t.Errorf("%s: %+v", name, f.events)
			continue
		}
		if f.show(20, gray(c.to, square)); c.to < 220 && (len(f.events) != 2 || f.events[1].kind != motion) {
			t.Errorf("%s: motion in the new scene: %+v", name, f.events)
		}
	}
	f := newFilm(Motion{After: time.Nanosecond})
	f.show(10, gray(100, nothing))
	f.show(4, gray(100, square))
	f.show(4, gray(5, nothing))
	if len(f.events) != 2 || f.events[0].kind != motion || f.events[1].kind != scene {
		t.Errorf("covered during motion: %+v", f.events)
	}
}

func TestWhatStaysBecomesTheBackground(t *testing.T) {
	f := newFilm(Motion{})
	f.show(10, gray(128, nothing))
	f.show(30, gray(128, square)) // a parked car
	if f.now != nil || len(f.events) != 1 {
		t.Errorf("%+v", f.events)
	}
}

func TestMotionUnderAMaskIsNone(t *testing.T) {
	f := newFilm(Motion{}, Mask{X: 0.3, Y: 0.3, Width: 0.3, Height: 0.4})
	f.show(10, gray(128, nothing))
	f.show(40, gray(128, square))
	if len(f.events) != 0 {
		t.Errorf("%+v", f.events)
	}
	all := newFilm(Motion{}, Mask{Width: 1, Height: 1})
	all.show(10, gray(128, nothing))
	all.show(40, gray(128, square))
	if len(all.events) != 0 {
		t.Errorf("everything is masked: %+v", all.events)
	}
}

func TestMaskedAreasAreBlack(t *testing.T) {
	data := encoded(t, gray(200, square))
	out, err := shown(data, []Mask{{X: 0.25, Y: 0.25, Width: 0.5, Height: 0.5}})
	if err != nil {
		t.Fatal(err)
	}
	img, err := senses.Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	for p, masked := range map[image.Point]bool{{130, 110}: true, {82, 62}: true, {238, 178}: true, {20, 20}: false} {
		if y := luma(img)(p.X, p.Y); y < 30 != masked {
			t.Errorf("%s is %d", p, y)
		}
	}
	if same, err := shown(data, nil); err != nil || !bytes.Equal(same, data) {
		t.Error("a picture without masks changed", err)
	}
}

func TestLargePicturesAreMadeSmall(t *testing.T) {
	noise := image.NewRGBA(image.Rect(0, 0, 1000, 800))
	seed := uint32(1)
	for i := range noise.Pix {
		seed = seed*1664525 + 1013904223
		noise.Pix[i] = byte(seed >> 24)
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, noise, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	out, err := shown(b.Bytes(), nil)
	if err == nil && len(out) > senses.MaxFrameBytes || err != nil && !strings.Contains(err.Error(), "smaller width") {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// A picture says how large it is before it is decoded.
func TestHugePicturesAreNotDecoded(t *testing.T) {
	data := encoded(t, gray(0, nothing))
	at := bytes.Index(data, []byte{0xff, 0xc0})
	copy(data[at+5:], []byte{0xff, 0xff, 0xff, 0xff}) // 65535 by 65535
	if _, err := senses.Decode(data); err == nil || !strings.Contains(err.Error(), "65535 x 65535") {
		t.Error(err)
	}
}
