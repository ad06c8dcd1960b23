package email

import (
	"context"
	"errors"
	"fmt"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/toolrunner/tools"
)

// maxShownFiles is how many files a result may show.
const maxShownFiles = 16

// keep stores attachments as artifacts of the call, and returns those that are shown.
func keep(ctx context.Context, c tools.Call, files []letter.File) (out []attachment, show []provider.File, err error) {
	for i, f := range files {
		f.Name = fmt.Sprintf("%d-%s", i+1, f.Name)
		a := attachment{Name: f.Name, MediaType: f.MediaType, Bytes: len(f.Content), Ref: c.Prefix() + f.Name}
		switch err := c.Store.PutArtifact(ctx, a.Ref, f.Content); {
		case errors.Is(err, bus.ErrTooLarge):
			a.Ref, a.Error = "", err.Error()
		case err != nil:
			return nil, nil, fmt.Errorf("storing the attachment %q: %w; try again", f.Name, err)
		default:
			if picture, ok := shown(c.Prefix(), f); ok && len(show) < maxShownFiles {
				show = append(show, picture)
			}
		}
		out = append(out, a)
	}
	return out, show, nil
}
