package senses

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/jpeg"
)

// Mask is a rectangle of a picture that nobody may see, in fractions of the picture, 0 to 1, from the
// left and the top.
type Mask struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Width  float64 `json:"width"`
	Height float64 `json:"height"`
}

// MaxPixels is the size of the largest picture that is decoded.
const MaxPixels = 16 << 20

// Decode decodes a JPEG that is not too large.
func Decode(data []byte) (image.Image, error) {
	head, err := jpeg.DecodeConfig(bytes.NewReader(data))
	switch {
	case err != nil:
		return nil, fmt.Errorf("not a JPEG: %w", err)
	case head.Width < 1 || head.Height < 1 || head.Width > MaxPixels/head.Height:
		return nil, fmt.Errorf("the picture has %d x %d pixels, at most %d", head.Width, head.Height, MaxPixels)
	}
	return jpeg.Decode(bytes.NewReader(data))
}

// qualities are those of JPEG that are tried until a picture is small enough.
var qualities = []int{85, 60, 35}

// Masked returns a picture as it may be shown: with masked areas black, and of at most [MaxFrameBytes].
func Masked(data []byte, masks []Mask) ([]byte, error) {
	if len(masks) == 0 && len(data) <= MaxFrameBytes {
		return data, nil
	}
	img, err := Decode(data)
	if err != nil {
		return nil, err
	}
	b := img.Bounds()
	out := image.NewRGBA(b)
	draw.Draw(out, b, img, b.Min, draw.Src)
	for _, m := range masks {
		// A pixel that a mask touches is masked; JPEG would smear a sharp edge into it.
		r := image.Rect(int(m.X*float64(b.Dx())), int(m.Y*float64(b.Dy())), int((m.X+m.Width)*float64(b.Dx()))+1,
			int((m.Y+m.Height)*float64(b.Dy()))+1).Add(b.Min).Intersect(b)
		draw.Draw(out, r, image.Black, image.Point{}, draw.Src)
	}
	for _, q := range qualities {
		var small bytes.Buffer
		if err := jpeg.Encode(&small, out, &jpeg.Options{Quality: q}); err != nil {
			return nil, err
		}
		if small.Len() <= MaxFrameBytes {
			return small.Bytes(), nil
		}
	}
	return nil, errors.New("the picture is too large; make it smaller, e.g. by width")
}
