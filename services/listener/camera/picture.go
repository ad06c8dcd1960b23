package camera

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"

	"skandha.dev/services/internal/senses"
)

// MaxPixels is the size of the largest picture that is decoded.
const MaxPixels = 16 << 20

// decode decodes a JPEG that is not too large.
func decode(data []byte) (image.Image, error) {
	head, err := jpeg.DecodeConfig(bytes.NewReader(data))
	switch {
	case err != nil:
		return nil, fmt.Errorf("not a JPEG: %w", err)
	case head.Width < 1 || head.Height < 1 || head.Width > MaxPixels/head.Height:
		return nil, fmt.Errorf("the picture has %d x %d pixels, at most %d", head.Width, head.Height, MaxPixels)
	}
	return jpeg.Decode(bytes.NewReader(data))
}

// The grid in which pictures are compared.
const (
	gridWidth  = 64
	gridHeight = 48
	cells      = gridWidth * gridHeight
	samples    = 4 // in each direction of a cell
)

// grid is the brightness of a picture's cells, 0 to 255.
type grid [cells]float32

// brightness returns the brightness of a picture's cells.
func brightness(img image.Image) *grid {
	at := luma(img)
	b := img.Bounds()
	var g grid
	for i := range g {
		sum := 0
		for s := range samples * samples {
			x := (i%gridWidth)*samples + s%samples
			y := (i/gridWidth)*samples + s/samples
			sum += int(at(b.Min.X+(2*x+1)*b.Dx()/(2*gridWidth*samples), b.Min.Y+(2*y+1)*b.Dy()/(2*gridHeight*samples)))
		}
		g[i] = float32(sum) / (samples * samples)
	}
	return &g
}

func luma(img image.Image) func(x, y int) uint8 {
	switch p := img.(type) {
	case *image.YCbCr:
		return func(x, y int) uint8 { return p.Y[p.YOffset(x, y)] }
	case *image.Gray:
		return func(x, y int) uint8 { return p.Pix[p.PixOffset(x, y)] }
	}
	return func(x, y int) uint8 {
		gray, ok := color.GrayModel.Convert(img.At(x, y)).(color.Gray)
		if !ok {
			return 0
		}
		return gray.Y
	}
}

// covered returns the cells that the masks touch.
func covered(masks []Mask) (out [cells]bool) {
	for i := range out {
		x, y := float64(i%gridWidth)/gridWidth, float64(i/gridWidth)/gridHeight
		for _, m := range masks {
			if x < m.X+m.Width && x+1./gridWidth > m.X && y < m.Y+m.Height && y+1./gridHeight > m.Y {
				out[i] = true
			}
		}
	}
	return out
}

// qualities are those of JPEG that are tried until a picture is small enough.
var qualities = []int{85, 60, 35}

// shown returns a picture as it may leave this process: with masked areas black, and of at most
// [senses.MaxFrameBytes].
func shown(data []byte, masks []Mask) ([]byte, error) {
	if len(masks) == 0 && len(data) <= senses.MaxFrameBytes {
		return data, nil
	}
	img, err := decode(data)
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
		if small.Len() <= senses.MaxFrameBytes {
			return small.Bytes(), nil
		}
	}
	return nil, errors.New("the picture is too large; set a smaller width")
}
