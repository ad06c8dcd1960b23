package camera

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"skandha.dev/services/internal/senses"
)

func all(data []byte, most int) (pictures [][]byte, err error) {
	s := newSplitter(bytes.NewReader(data), most)
	for {
		p, err := s.next()
		if err != nil {
			return pictures, err
		}
		pictures = append(pictures, bytes.Clone(p))
	}
}

func TestAStreamIsSplitIntoItsPictures(t *testing.T) {
	one, two := encoded(t, gray(10, square)), encoded(t, gray(200, nothing))
	thumb := append([]byte{0xff, 0xd8, 0xff, 0xe1, 0, 8, 0xff, 0xd8, 0xff, 0xd9, 1, 2}, one[2:]...) // a segment with an end in it
	cut := one[:len(one)/2]
	stream := bytes.Join([][]byte{[]byte("--boundary\r\n"), one, two, []byte("noise\xff"), thumb, cut, two}, nil)
	got, err := all(stream, 1<<20)
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	want := [][]byte{one, two, thumb}
	if len(got) < len(want) {
		t.Fatalf("%d pictures, want at least %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("picture %d is another one", i)
		}
	}
}

func TestPicturesThatAreTooLargeAreDropped(t *testing.T) {
	small, large := encoded(t, gray(10, nothing)), encoded(t, gray(10, square))
	got, err := all(append(append(bytes.Clone(small), large...), small...), len(small)+10)
	if !errors.Is(err, io.EOF) || len(got) != 2 || !bytes.Equal(got[1], small) {
		t.Errorf("%d pictures, %v", len(got), err)
	}
}

type endless struct{ b byte }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.b
	}
	return len(p), nil
}

func TestAStreamWithoutPicturesIsGivenUp(t *testing.T) {
	for _, r := range []io.Reader{
		endless{0}, endless{0xff}, io.MultiReader(bytes.NewReader([]byte{0xff, 0xd8, 0xff, 0xda, 0, 2}), endless{1}),
	} {
		if _, err := newSplitter(r, 1<<20).next(); !errors.Is(err, errNoPictures) {
			t.Error(err)
		}
	}
}

func FuzzPictures(f *testing.F) {
	one := encoded(f, gray(10, square))
	f.Add(one)
	f.Add(append(bytes.Clone(one[:len(one)/2]), one...))
	f.Add([]byte{0xff, 0xd8, 0xff, 0xd9})
	f.Add([]byte("\xff\xd8\xff\xe0\x00\x00\xff\xda\x00\x02\xff\x00\xff\xd0"))
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 1 << 16
		got, err := all(data, most)
		if err == nil {
			t.Fatal("a stream does not end")
		}
		total := 0
		for _, p := range got {
			if total += len(p); len(p) > most || !bytes.HasPrefix(p, []byte{0xff, 0xd8}) || !bytes.HasSuffix(p, []byte{0xff, 0xd9}) {
				t.Fatalf("a picture of %d bytes", len(p))
			}
			if img, err := senses.Decode(p); err == nil && img.Bounds().Dx()*img.Bounds().Dy() <= 1<<20 {
				brightness(img)
				if _, err := shown(p, []Mask{{0.1, 0.1, 0.5, 0.5}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if total > len(data) {
			t.Fatalf("%d bytes of pictures in %d", total, len(data))
		}
	})
}
