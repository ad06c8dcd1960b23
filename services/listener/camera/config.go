package camera

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/bounds"
	"skandha.dev/services/internal/ffmpeg"
	"skandha.dev/services/internal/senses"
	"skandha.dev/services/listener/capture"
)

// Config of a camera: exactly one source (url, file, device or page).
type Config struct {
	ffmpeg.Source  `yaml:",inline"`
	Device         string `yaml:"device"` // of Video4Linux, e.g. /dev/video0
	Page           bool   `yaml:"page"`   // the camera that a person shares with the session on the page
	capture.Config `yaml:",inline"`
	FPS            float64 `yaml:"fps" default:"4" min:"0.2" max:"30"`      // pictures in a second that are compared
	Width          int     `yaml:"width" default:"640" min:"64" max:"1920"` // of pictures, at most; in pixels
	Masks          []Mask  `yaml:"masks"`                                   // what nobody may see
	Motion         Motion  `yaml:"motion"`
}

// Mask is a rectangle in fractions of the picture, 0 to 1, from the left and the top.
type Mask struct {
	X      float64 `yaml:"x"`
	Y      float64 `yaml:"y"`
	Width  float64 `yaml:"width"`
	Height float64 `yaml:"height"`
}

// Motion says what is an event.
type Motion struct {
	Off       bool          `yaml:"off"`                                      // only camera:look uses the camera
	Area      float64       `yaml:"area" default:"0.01" min:"0.0005" max:"1"` // the share of the picture that must change
	Threshold int           `yaml:"threshold" default:"25" min:"2" max:"255"` // the change of brightness that counts, of 255
	Frames    int           `yaml:"frames" default:"2" min:"1" max:"100"`     // pictures in a row
	Quiet     time.Duration `yaml:"quiet" default:"5s" min:"100ms" max:"10m"` // without motion, after which an event is over
	After     time.Duration `yaml:"after" default:"2s" min:"1ms" max:"5m"`    // after the beginning of an event, the input
	Pictures  int           `yaml:"pictures" default:"2" min:"1" max:"8"`     // of an event
}

// defaultEvery is the default of every.
const defaultEvery = 30 * time.Second

// maxMasks bounds the masks.
const maxMasks = 64

// videoDevice is the name of a device of Video4Linux.
var videoDevice = regexp.MustCompile(`^/dev/(video\d+|v4l/[A-Za-z0-9_./:-]+)$`)

// Validate reports everything that is wrong; each error names its field.
func (c Config) Validate(name subject.Writer) error {
	c = c.withDefaults()
	errs := []error{bounds.Check("", struct {
		FPS    float64 `yaml:"fps" min:"0.2" max:"30"`
		Width  int     `min:"64" max:"1920"`
		Motion Motion
	}{c.FPS, c.Width, c.Motion}), c.Config.Validate(), c.Source.Validate()}
	if name == senses.PageCamera {
		errs = append(errs, fmt.Errorf("the name %s means the camera that a person shares on the page; choose another", name))
	}
	sources := 0
	for _, given := range []bool{c.URL != "", c.File != "", c.Device != "", c.Page} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		errs = append(errs, fmt.Errorf("url, file, device, page: %d of them are set, want exactly one", sources))
	}
	if c.Device != "" && !videoDevice.MatchString(c.Device) {
		errs = append(errs, fmt.Errorf("device is %.100q, want a device of Video4Linux, such as /dev/video0", c.Device))
	}
	if len(c.Masks) > maxMasks {
		errs = append(errs, fmt.Errorf("masks has %d entries, at most %d", len(c.Masks), maxMasks))
	}
	for i, m := range c.Masks {
		if !(m.X >= 0 && m.Y >= 0 && m.Width > 0 && m.Height > 0 && m.X+m.Width <= 1.0001 && m.Y+m.Height <= 1.0001) {
			errs = append(errs, fmt.Errorf(
				"masks[%d]: x, y, width and height are fractions of the picture; keep x+width and y+height within 1", i))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Every == 0 {
		c.Every = defaultEvery
	}
	c.Config = bounds.Filled(c.Config)
	c.Motion = bounds.Filled(c.Motion)
	if c.FPS == 0 {
		c.FPS = 4
	}
	if c.Width == 0 {
		c.Width = 640
	}
	return c
}

// output is how ffmpeg writes pictures.
func (c Config) output() []string {
	return append([]string{
		"-map", "0:v:0", "-an", "-sn", "-dn",
		"-vf", fmt.Sprintf("fps=%g,scale=w='min(%d,iw)':h=-2", c.FPS, c.Width),
		"-c:v", "mjpeg", "-q:v", "5", "-pix_fmt", "yuvj420p", "-f", "image2pipe", "-flush_packets", "1",
	}, ffmpeg.Output...)
}

// child is what reads the source.
func (c Config) child() (ffmpeg.Child, error) {
	if c.Device != "" {
		child := ffmpeg.Device("v4l2", c.Device, nil, c.output())
		child.Stall = c.Stall
		return child, nil
	}
	child, err := c.Source.Child(c.output()...)
	child.Stall = c.Stall
	return child, err
}
