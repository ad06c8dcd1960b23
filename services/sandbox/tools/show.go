package tools

import (
	"context"
	"net/http"
	"path"

	"skandha.dev/pkg/provider"
	"skandha.dev/services/sandbox/agent"
)

const (
	// maxShown bounds a file that a model is shown: the provider service sends no larger one.
	maxShown = 10 << 20
	// sniffed is how much of a file decides what it is, in bytes.
	sniffed = 512
)

// shown is the data of a result with a file for the model to look at.
type shown struct {
	Artifact
	Note string `json:"note"`
	file provider.File
}

// shownAs returns the media type of a file that models can look at, by its content; empty if
// it is any other file.
func shownAs(head []byte) string {
	switch media := http.DetectContentType(head); media {
	case "image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf":
		return media
	}
	return ""
}

// show keeps a picture or PDF as an artifact, which the provider service adds to the result
// when it asks the model.
func show(ctx context.Context, conn *agent.Conn, c Call, store Store, name string) (any, error) {
	data, err := readAll(ctx, conn, name, maxShown)
	if err != nil {
		return nil, err
	}
	media := shownAs(data)
	if media == "" {
		return nil, failf("%.200q changed while it was read; read it again", name)
	}
	a, err := keep(ctx, c, store, name, media, data)
	if err != nil {
		return nil, err
	}
	f := provider.File{Ref: a.Ref, Name: path.Base(a.Path), MediaType: media, Bytes: a.Bytes}
	if err := f.Check(); err != nil {
		return nil, failf("%.200q cannot be shown: %v; move it to a shorter path", name, err)
	}
	return shown{a, "the file is shown with this result", f}, nil
}
