package filesystem

import (
	"context"
	"fmt"
	"io"

	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/toolrunner/tools"
)

// picture is the data of a result with a file for the model to look at.
type picture struct {
	Path      string `json:"path"`
	Size      int64  `json:"size"`
	MediaType string `json:"media_type"`
	Ref       string `json:"ref"` // of the artifact
	Note      string `json:"note"`
}

// shownAs returns the media type of a picture or PDF, by its content; "" for any other file, and
// for one that cannot be read.
func shownAs(f io.ReaderAt) string {
	head := make([]byte, result.Sniffed)
	n, _ := f.ReadAt(head, 0) // an error appears again when the file is read
	return result.ShownAs(head[:n])
}

// shown is a file for the model to look at.
type shown struct {
	media   string // "": it is none
	content []byte // nil if it is too large
	size    int64
}

// readShown reads a file if it is a picture or PDF.
func readShown(f io.ReaderAt, size int64) (shown, error) {
	s := shown{media: shownAs(f), size: size}
	if s.media == "" || size > result.MaxShown {
		return s, nil
	}
	var err error
	s.content, err = io.ReadAll(io.NewSectionReader(f, 0, result.MaxShown+1)) // it may have grown
	return s, err
}

// show keeps a picture or PDF as an artifact, which the provider service adds to the result when
// it asks the model.
func show(ctx context.Context, c tools.Call, name string, s shown) tool.Result {
	if s.size > result.MaxShown {
		return tools.Fail(result.TooLargeToShow(name, s.media, s.size))
	}
	shown, err := result.Shown(c.Prefix(), name, s.content)
	if err != nil {
		return tools.Fail(err)
	}
	if err := c.Store.PutArtifact(ctx, shown.Ref, s.content); err != nil {
		return tools.Fail(fmt.Errorf("storing %.200q, to show it: %w; try again", name, err))
	}
	r := tool.OK(picture{name, shown.Bytes, s.media, shown.Ref, result.ShownNote})
	r.Files = []provider.File{shown}
	return r
}
