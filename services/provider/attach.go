package provider

import (
	"context"
	"encoding/json"
	"slices"

	"skandha.dev/pkg/bus"
	contract "skandha.dev/pkg/provider"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/provider/adapter"
)

// Bounds of the files of a request, in bytes: vendors accept some 20 MB of JSON, and a message
// on the bus is limited.
const (
	maxFileBytes   = 10 << 20
	maxFilesBytes  = 14 << 20
	maxPluginFiles = 512 << 10
)

// attach adds the content of files to the messages of a request, the latest first, until
// they have most bytes. Files that are too large, that are no longer stored or damaged, or
// that belong to another session stay without content.
func (s *service) attach(ctx context.Context, ref subject.Ref, req *contract.Request, most int) *contract.Error {
	talk, err := req.Conversation()
	if err != nil || !slices.ContainsFunc(talk, func(m contract.Message) bool { return len(m.Files) > 0 }) {
		return nil // the adapter reports the error
	}
	messages := slices.Clone(req.Messages)
	for i, m := range slices.Backward(talk) {
		if len(m.Files) == 0 {
			continue
		}
		for j := range m.Files {
			f := &m.Files[j]
			if f.Data = nil; f.Bytes > int64(min(most, maxFileBytes)) || !f.In(ref) {
				continue
			}
			data, err := s.bus.GetArtifact(ctx, f.Ref)
			switch {
			case err != nil && (ctx.Err() != nil || bus.Retryable(err)):
				return adapter.Errorf(contract.ErrUnavailable, "fetching file %s: %v", f.Ref, err)
			case err == nil && len(data) <= min(most, maxFileBytes):
				f.Data = data
				most -= len(data)
			}
		}
		if messages[i], err = json.Marshal(m); err != nil {
			return adapter.Errorf(contract.ErrInternal, "encoding a message: %v", err)
		}
	}
	req.Messages = messages
	return nil
}
