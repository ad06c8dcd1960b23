package microphone

import (
	"encoding/binary"
	"math"
	"time"
)

// The format of sound: 16-bit little-endian PCM, mono.
const (
	rate        = 16000
	frameTime   = 20 * time.Millisecond
	frameBytes  = rate / 50 * 2
	bytesPerSec = rate * 2
)

const (
	attackFrames  = 3  // with energy, in a row, that begin speech
	preRollFrames = 15 // before the beginning of speech
	// quietest is the lowest noise floor, in decibels below full scale; risePerFrame is how fast it
	// follows louder sound, and fall how fast it follows silence.
	quietest     = -96.0
	risePerFrame = 2.0 / 50
	fall         = 0.5
)

// segment is one piece of speech.
type segment struct {
	pcm   []byte
	began time.Time
}

// gate finds speech in sound. It is pure: time is that of the sound.
type gate struct {
	cfg     Speech
	floor   float64
	known   bool // the floor
	before  []byte
	loud    int    // frames with energy, in a row, outside of speech
	speech  []byte // of the current segment; nil: none
	voiced  int    // its frames with energy
	silent  int    // its last frames without
	heard   int64  // frames
	started int64  // the frame at which the segment began
	origin  time.Time
}

func newGate(cfg Speech, began time.Time) *gate { return &gate{cfg: cfg, origin: began} }

// level returns the energy of a frame in decibels below full scale.
func level(frame []byte) float64 {
	var sum float64
	n := len(frame) / 2
	for i := range n {
		v := float64(int16(binary.LittleEndian.Uint16(frame[2*i:]))) / 32768 //nolint:gosec // the bits are a signed number
		sum += v * v
	}
	if n == 0 || sum == 0 {
		return quietest
	}
	return max(quietest, 10*math.Log10(sum/float64(n)))
}

// hear takes a frame, and returns a segment that is complete.
func (g *gate) hear(frame []byte) (segment, bool) {
	g.heard++
	energy := level(frame)
	switch {
	case !g.known:
		g.floor, g.known = min(energy, g.cfg.Least), true // the first sound may be speech
	case energy < g.floor:
		g.floor += fall * (energy - g.floor)
	default:
		g.floor = min(energy, g.floor+risePerFrame)
	}
	active := energy > g.floor+g.cfg.Margin && energy > g.cfg.Least
	if g.speech == nil {
		g.wait(frame, active)
		return segment{}, false
	}
	g.speech = append(g.speech, frame...)
	if active {
		g.voiced++
		g.silent = 0
	} else {
		g.silent++
	}
	if time.Duration(g.silent)*frameTime >= g.cfg.Hangover || length(g.speech) >= g.cfg.MaxSpeech {
		return g.end()
	}
	return segment{}, false
}

// wait looks for the beginning of speech.
func (g *gate) wait(frame []byte, active bool) {
	g.before = append(g.before, frame...)
	if over := len(g.before) - (preRollFrames+attackFrames)*frameBytes; over > 0 {
		g.before = append(g.before[:0], g.before[over:]...)
	}
	if !active {
		g.loud = 0
		return
	}
	if g.loud++; g.loud >= attackFrames {
		g.speech, g.voiced, g.silent = append([]byte{}, g.before...), g.loud, 0
		g.started = g.heard - int64(len(g.before)/frameBytes)
		g.before, g.loud = g.before[:0], 0
	}
}

// end ends the current segment, and returns it if there was enough speech in it.
func (g *gate) end() (segment, bool) {
	s := segment{g.speech, g.origin.Add(time.Duration(g.started) * frameTime)}
	enough := g.speech != nil && time.Duration(g.voiced)*frameTime >= g.cfg.MinSpeech
	g.speech, g.voiced, g.silent = nil, 0, 0
	return s, enough
}

// length is how long sound is.
func length(pcm []byte) time.Duration {
	return time.Duration(len(pcm)) * time.Second / bytesPerSec
}

// wav returns sound as a WAV file.
func wav(pcm []byte) []byte {
	out := make([]byte, 0, 44+len(pcm))
	size := uint32(len(pcm)) //nolint:gosec // at most two minutes
	out = append(out, "RIFF"...)
	out = binary.LittleEndian.AppendUint32(out, 36+size)
	out = append(out, "WAVEfmt "...)
	out = binary.LittleEndian.AppendUint32(out, 16)
	out = binary.LittleEndian.AppendUint16(out, 1) // PCM
	out = binary.LittleEndian.AppendUint16(out, 1) // mono
	out = binary.LittleEndian.AppendUint32(out, rate)
	out = binary.LittleEndian.AppendUint32(out, bytesPerSec)
	out = binary.LittleEndian.AppendUint16(out, 2)
	out = binary.LittleEndian.AppendUint16(out, 16)
	out = append(out, "data"...)
	out = binary.LittleEndian.AppendUint32(out, size)
	return append(out, pcm...)
}
