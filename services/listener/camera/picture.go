package camera

import (
	"image"
	"image/color"

	"skandha.dev/services/internal/senses"
)

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

// shown returns a picture as it may leave this process: with masked areas black, and of at most
// [senses.MaxFrameBytes].
func shown(data []byte, masks []Mask) ([]byte, error) {
	return senses.Masked(data, areas(masks))
}

// areas are masks as other processes need them.
func areas(masks []Mask) (out []senses.Mask) {
	for _, m := range masks {
		out = append(out, senses.Mask(m))
	}
	return out
}
