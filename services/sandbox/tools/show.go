package tools

import (
	"context"

	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/sandbox/agent"
)

// shown is the data of a result with a file for the model to look at.
type shown struct {
	Artifact
	Note string `json:"note"`
	file provider.File
}

// show keeps a picture or PDF as an artifact, which the provider service adds to the result
// when it asks the model.
func show(ctx context.Context, conn *agent.Conn, c Call, store Store, name string) (any, error) {
	data, err := readAll(ctx, conn, name, result.MaxShown)
	if err != nil {
		return nil, err
	}
	f, err := result.Shown(c.Prefix(), name, data)
	if err != nil {
		return nil, failf("%v", err)
	}
	a, err := keep(ctx, c, store, name, f.MediaType, data)
	if err != nil {
		return nil, err
	}
	return shown{a, result.ShownNote, f}, nil
}
