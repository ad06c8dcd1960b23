package result

import (
	"bytes"
	"strings"
	"testing"
)

func TestPicturesAreShownByWhatTheyContain(t *testing.T) {
	for content, want := range map[string]string{
		"\x89PNG\r\n\x1a\n": "image/png", "\xff\xd8\xff\xe0": "image/jpeg", "GIF89a": "image/gif",
		"RIFF\x04\x00\x00\x00WEBPVP8 ": "image/webp", "%PDF-1.4": "application/pdf", "text": "", "": "",
		"\x00\x01": "", "<svg xmlns=''/>": "", "<!DOCTYPE html>": "",
	} {
		f, err := Shown("a/s/c/n/", "out/plot.txt", []byte(content))
		switch {
		case f.MediaType != want:
			t.Errorf("%q is shown as %q, want %q", content, f.MediaType, want)
		case want == "" && (err == nil || !strings.Contains(err.Error(), "changed while it was read")):
			t.Errorf("%q: %v", content, err)
		case want != "" && (err != nil || f.Ref != "a/s/c/n/out/plot.txt" || f.Name != "plot.txt" ||
			f.Bytes != int64(len(content))):
			t.Errorf("%q: %+v, %v", content, f, err)
		}
	}
}

func TestWhatCannotBeShown(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n")
	for name, want := range map[string]string{
		"a\nb": "control characters", "../a": "leads out",
		strings.Repeat("x/", 252) + "x": "ref has", strings.Repeat("x", 600): "ref has",
	} {
		if _, err := Shown("a/s/c/n/", name, png); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", name, err, want)
		}
	}
	large := append(bytes.Clone(png), make([]byte, MaxShown)...)
	_, err := Shown("", "a", large)
	if err == nil || !strings.Contains(err.Error(), "has 10485768 bytes; at most 10485760") {
		t.Errorf("%v", err)
	}
}

func TestWhatIsNoNameOfAnArtifactIsNone(t *testing.T) {
	for _, p := range []string{"out/a.png", "ä b.txt", "..a", "a/..b"} {
		if !ValidPath(p) {
			t.Errorf("%q is refused", p)
		}
	}
	for _, p := range []string{
		"", ".", "..", "../a", "a/../../b", "a/../b", "/a", "a//b", "a/", "a\nb", "a\x00", "\xff",
		strings.Repeat("x", MaxPath+1),
	} {
		if ValidPath(p) {
			t.Errorf("%q is accepted", p)
		}
	}
}
