package camera

import (
	"fmt"
	"slices"
	"time"
)

// kind is the kind of an event.
type kind string

const (
	motion kind = "motion"
	scene  kind = "scene"
)

const (
	// sceneArea is the share of the picture that changes when the scene does.
	sceneArea = 0.6
	// learning is how many pictures are the first background.
	learning = 3
	// The background follows cells that have not changed, and much more slowly those that have.
	follow, followChanged = 0.1, 0.01
	// maxEvent is the longest event.
	maxEvent = 10 * time.Minute
	// An event goes on while a share of the picture differs from the last picture: this part of what
	// begins one, as something large that moves slowly differs at its edges only.
	goesOn = 0.25
	// dark and bright are the mean brightness below and above which a scene is.
	dark, bright = 20, 235
)

// detector compares pictures with the background. It is pure.
type detector struct {
	cfg    Motion
	masked [cells]bool
	open   int // cells that are not masked
	back   grid
	before grid // the last picture
	seen   int
	mean   float32 // of the last picture
}

func newDetector(cfg Motion, masks []Mask) *detector {
	d := &detector{cfg: cfg, masked: covered(masks)}
	for _, m := range d.masked {
		if !m {
			d.open++
		}
	}
	return d
}

// see compares a picture with the background and with the last picture, and returns the shares of it
// that differ.
func (d *detector) see(g *grid) (changed, moved float64) {
	if d.open == 0 {
		return 0, 0
	}
	d.seen++
	defer func() { d.before = *g }()
	var changes, moves int
	var sum float32
	for i, v := range g {
		if d.masked[i] {
			continue
		}
		sum += v
		if d.seen > 1 && d.counts(v-d.before[i]) {
			moves++
		}
		diff := v - d.back[i]
		rate := float32(follow)
		switch {
		case d.seen <= learning:
			rate = 1 / float32(d.seen)
		case d.counts(diff):
			changes++
			rate = followChanged
		}
		d.back[i] += rate * diff
	}
	d.mean = sum / float32(d.open)
	return float64(changes) / float64(d.open), float64(moves) / float64(d.open)
}

func (d *detector) counts(diff float32) bool {
	return diff > float32(d.cfg.Threshold) || -diff > float32(d.cfg.Threshold)
}

// learn makes the picture the background.
func (d *detector) learn(g *grid) { d.back, d.seen = *g, learning }

// shot is a picture of an event.
type shot struct {
	jpeg []byte
	at   time.Time
	area float64
}

// event is what is perceived.
type event struct {
	kind  kind
	began time.Time
	area  float64 // the largest
	mean  float32 // brightness
	shots []shot  // in the order of their time
}

// tracker makes events of pictures. It is pure: time comes with the pictures.
type tracker struct {
	cfg      Motion
	detector *detector
	run      int    // pictures in a row with motion
	now      *event // that has begun
	last     time.Time
	said     bool // of the current event
}

func newTracker(cfg Motion, masks []Mask) *tracker {
	return &tracker{cfg: cfg, detector: newDetector(cfg, masks)}
}

// see takes a picture, and returns the events that are to be perceived now.
func (t *tracker) see(g *grid, jpeg []byte, at time.Time) (out []event) {
	area, moved := t.detector.see(g)
	if t.now != nil && !at.After(t.last.Add(-time.Hour)) {
		out = append(out, t.end()...) // the clock was set back
	}
	if area < t.cfg.Area {
		t.run = 0
	} else {
		t.run++
	}
	if t.now != nil && moved >= goesOn*t.cfg.Area {
		t.last = at
	}
	if t.run >= t.cfg.Frames && (t.now == nil || area >= sceneArea) {
		t.last = at
		is := motion
		if area >= sceneArea {
			is = scene
			t.detector.learn(g)
		}
		out = append(out, t.begin(is, at)...)
	}
	if t.now == nil {
		return out
	}
	t.now.mean = t.detector.mean
	t.now.add(shot{slices.Clone(jpeg), at, area}, t.cfg.Pictures)
	switch {
	case at.Sub(t.last) >= t.cfg.Quiet, at.Sub(t.now.began) >= maxEvent:
		t.detector.learn(g) // what has come to rest, like a parked car, is no motion
		out = append(out, t.end()...)
	case !t.said && at.Sub(t.now.began) >= t.cfg.After:
		out = append(out, t.say())
	}
	return out
}

// begin begins an event, unless it belongs to the current one.
func (t *tracker) begin(is kind, at time.Time) (out []event) {
	switch {
	case t.now == nil:
	case is == motion || t.now.kind == scene:
		return nil
	case !t.said:
		t.now.kind = scene
		return nil
	default:
		out = t.end()
	}
	t.now, t.said = &event{kind: is, began: at}, false
	return out
}

func (t *tracker) say() event {
	t.said = true
	e := *t.now
	e.shots = slices.Clone(e.shots)
	slices.SortFunc(e.shots, func(a, b shot) int { return a.at.Compare(b.at) })
	return e
}

// end ends the current event, and returns it if it was not perceived yet.
func (t *tracker) end() (out []event) {
	if t.now != nil && !t.said {
		out = append(out, t.say())
	}
	t.now, t.run = nil, 0
	return out
}

// add keeps the pictures in which most has changed, and the last one of a changed scene.
func (e *event) add(s shot, most int) {
	e.area = max(e.area, s.area)
	if e.kind == scene && len(e.shots) == most {
		e.shots[most-1] = s // how it is now, not how it changed
		return
	}
	e.shots = append(e.shots, s)
	if len(e.shots) > most {
		least := slices.MinFunc(e.shots, func(a, b shot) int {
			switch {
			case a.area < b.area:
				return -1
			case a.area > b.area:
				return 1
			}
			return 0
		})
		e.shots = slices.DeleteFunc(e.shots, func(o shot) bool { return o.at.Equal(least.at) })
	}
}

// text says what was seen.
func (e event) text(camera string) string {
	what := fmt.Sprintf("saw motion: %s of the picture changed", percent(e.area))
	if e.kind == scene {
		what = fmt.Sprintf("sees another scene: %s of the picture changed at once", percent(e.area))
		switch {
		case e.mean < dark:
			what += ", and it is dark now; the camera is covered, or the light went out"
		case e.mean > bright:
			what += ", and it is very bright now"
		default:
			what += "; the camera was moved or uncovered, or the light was switched"
		}
	}
	return fmt.Sprintf("Camera %s %s, at %s.", camera, what, e.began.UTC().Format("2006-01-02 15:04:05 MST"))
}

func percent(share float64) string {
	if share < 0.1 {
		return fmt.Sprintf("%.1f%%", 100*share)
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}
