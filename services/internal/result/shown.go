package result

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"skandha.dev/pkg/provider"
)

const (
	// MaxShown is the size of the largest file that a model is shown, in bytes: the provider
	// service sends no larger one.
	MaxShown = 10 << 20
	// Sniffed is how much of a file decides what it is, in bytes.
	Sniffed = 512
	// MaxPath is the longest path in an artifact's name, in bytes.
	MaxPath = 512
	// ShownNote is what a result says of the file that is shown with it.
	ShownNote = "the file is shown with this result"
)

// ShownAs returns the media type of a file that models can look at, a picture or a PDF, by its
// content; "" for any other file.
func ShownAs(head []byte) string {
	switch media := http.DetectContentType(head); media {
	case "image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf":
		return media
	}
	return ""
}

// Shown describes a file that a result shows the model, once its content is stored as the
// artifact that Ref names. The ref is the path after a prefix. An error is for the model.
func Shown(prefix, name string, content []byte) (provider.File, error) {
	f := provider.File{
		Ref: prefix + path.Clean(name), Name: path.Base(name), MediaType: ShownAs(content), Bytes: int64(len(content)),
	}
	err := f.Check()
	switch {
	case f.MediaType == "":
		return f, fmt.Errorf("%.200q changed while it was read; read it again", name)
	case f.Bytes > MaxShown:
		return f, TooLargeToShow(name, f.MediaType, f.Bytes)
	case err == nil && !ValidPath(path.Clean(name)):
		err = errors.New("its path has control characters, or leads out of the folder")
	}
	if err != nil {
		return f, fmt.Errorf("%.200q cannot be shown: %w; move it to a shorter path of plain characters", name, err)
	}
	return f, nil
}

// TooLargeToShow is the error for a picture or PDF above [MaxShown].
func TooLargeToShow(name, media string, size int64) error {
	return fmt.Errorf("%.200q (%s) has %d bytes; at most %d can be shown: make it smaller", name, media, size, MaxShown)
}

// ValidPath reports whether a path may be part of an artifact's name: it is relative, clean and
// has no control characters. Code whose files are kept is not trusted to name them.
func ValidPath(p string) bool {
	if p == "" || len(p) > MaxPath || !utf8.ValidString(p) || path.IsAbs(p) || path.Clean(p) != p || p == "." ||
		p == ".." || strings.HasPrefix(p, "../") {
		return false
	}
	return !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f })
}
