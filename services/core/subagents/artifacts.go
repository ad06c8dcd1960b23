package subagents

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"skandha.dev/pkg/subject"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/core/runner"
	"skandha.dev/services/internal/result"
)

// Bounds of the files that come with a result.
const (
	maxArtifacts     = 32
	maxArtifactBytes = 64 << 20 // together
)

// artifact is a file that a call has made, as results describe it.
type artifact struct {
	Path      string `json:"path"`
	Ref       string `json:"ref"` // its name in the object store "artifacts"
	MediaType string `json:"media_type"`
	Bytes     int64  `json:"bytes"`
}

// artifactsOf returns the files of a session that a result names. One of another session is not the
// result's to give.
func artifactsOf(ref subject.Ref, r tool.Result) (out []artifact) {
	var data struct {
		artifact             // of a tool that hands over one file
		Artifacts []artifact `json:"artifacts"`
	}
	if !r.Success || json.Unmarshal(r.Data, &data) != nil {
		return nil
	}
	for _, a := range append(data.Artifacts, data.artifact) {
		if strings.HasPrefix(a.Ref, ref.String()+"/") {
			out = append(out, a)
		}
	}
	return out
}

// bring copies the files that sub-agents have made to the caller's session, under the call's name. Of
// files with the same path, the latest counts.
func (s *Subagents) bring(ctx context.Context, c runner.Call, got []found) {
	left := int64(maxArtifactBytes)
	for i := range got {
		f := &got[i]
		latest := map[string]artifact{}
		var paths []string
		for _, a := range f.made {
			if _, had := latest[a.Path]; !had {
				paths = append(paths, a.Path)
			}
			latest[a.Path] = a
		}
		for n, p := range paths {
			a := latest[p]
			if n >= maxArtifacts || a.Bytes > left {
				f.LeftOut = append(f.LeftOut, fmt.Sprintf("%s of %d bytes: at most %d files and %d MiB are copied", p, a.Bytes, maxArtifacts,
					maxArtifactBytes>>20))
				continue
			}
			name := fmt.Sprintf("%s/%d-%d-%s", result.Name(c.Ref, c.ID, c.Attempt), i, n, path.Base(p))
			data, err := s.cfg.Bus.GetArtifact(ctx, a.Ref)
			if err == nil {
				err = s.cfg.Bus.PutArtifact(ctx, name, data)
			}
			if err != nil {
				f.LeftOut = append(f.LeftOut, fmt.Sprintf("%s: %v", p, err))
				continue
			}
			left -= int64(len(data))
			f.Artifacts = append(f.Artifacts, artifact{p, name, a.MediaType, int64(len(data))})
		}
	}
}
