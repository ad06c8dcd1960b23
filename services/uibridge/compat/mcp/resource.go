package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// The URIs of resources. The parts are names without any encoding; an artifact's is its name in
// base64url, because names have slashes and may have any character.
const (
	uriPrefix = "skandha://sessions/"
	ofFiles   = "/artifacts/"
)

// maxArtifact limits the size of an artifact that is sent, in bytes.
const maxArtifact = 8 << 20

const mediaJSON = "application/json"

func uriOf(ref subject.Ref) string { return uriPrefix + ref.String() }

func addTemplates(s *sdk.Server, d *Handler) {
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "session", Title: "A session", URITemplate: uriPrefix + "{agent}/{session}", MIMEType: mediaJSON,
		Description: "The latest turns of a session, as read_session returns them.",
	}, d.readResource)
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "artifact", Title: "A file of a session", URITemplate: uriPrefix + "{agent}/{session}" + ofFiles + "{id}",
		Description: "A file that a tool has handed over, or a person has sent. Sessions list theirs.",
	}, d.readResource)
}

// listResources lists the sessions that the caller may see.
func (d *Handler) listResources(ctx context.Context, c *caller, req *sdk.ListResourcesRequest) (sdk.Result, error) {
	in := listSessionsInput{}
	if req.Params != nil {
		in.Cursor = req.Params.Cursor
	}
	page, err := d.sessions(ctx, c, in)
	if err != nil {
		return nil, d.wire(err)
	}
	out := &sdk.ListResourcesResult{Resources: []*sdk.Resource{}, NextCursor: page.Next}
	out.CacheScope = "private"
	for _, s := range page.Sessions {
		ref := subject.Ref{Agent: s.Agent, Session: s.Session}
		out.Resources = append(out.Resources, &sdk.Resource{
			URI: uriOf(ref), Name: string(s.Session), Title: s.Title, MIMEType: mediaJSON,
			Description: "Agent " + string(s.Agent) + ", " + s.State + ", last used " + s.Updated,
		})
	}
	return out, nil
}

// place is what a URI names.
type place struct {
	ref      subject.Ref
	artifact string // its name; "": the session
}

// parseURI reads a URI strictly: each place has only one.
func parseURI(uri string) (p place, ok bool) {
	rest, ok := strings.CutPrefix(uri, uriPrefix)
	if !ok {
		return p, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 2 && len(parts) != 4 {
		return p, false
	}
	ref, err := request.Ref(parts[0], parts[1])
	if p.ref = ref; err != nil || len(parts) == 2 {
		return p, err == nil
	}
	name, err := base64.RawURLEncoding.Strict().DecodeString(parts[3])
	p.artifact = string(name)
	return p, err == nil && len(name) > 0 && utf8.Valid(name) && artifactURI(p.ref, p.artifact) == uri
}

func artifactURI(ref subject.Ref, name string) string {
	return uriOf(ref) + ofFiles + base64.RawURLEncoding.EncodeToString([]byte(name))
}

func (d *Handler) readResource(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	out, err := d.read(ctx, callerOf(ctx), req.Params.URI)
	if hidden(err) {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	if err != nil {
		return nil, d.wire(err)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{out}}, nil
}

func (d *Handler) read(ctx context.Context, c *caller, uri string) (*sdk.ResourceContents, error) {
	p, ok := parseURI(uri)
	if !ok {
		return nil, errNoSession
	}
	ref, err := d.known(ctx, c, string(p.ref.Agent), string(p.ref.Session))
	if err != nil {
		return nil, err
	}
	if p.artifact != "" {
		return d.readArtifact(ctx, c, p, uri)
	}
	s, err := d.session(ctx, c, ref, defaultTurns, "")
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(s)
	return &sdk.ResourceContents{URI: uri, MIMEType: mediaJSON, Text: string(b)}, err
}

// readArtifact returns the content as text, if it is text, or else as bytes.
func (d *Handler) readArtifact(ctx context.Context, c *caller, p place, uri string) (*sdk.ResourceContents, error) {
	select {
	case d.reading <- struct{}{}:
		defer func() { <-d.reading }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	data, err := d.deps.Artifact(ctx, c.p, p.ref, p.artifact)
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxArtifact:
		return nil, &contract.Error{
			Code:    contract.CodeTooLarge,
			Message: "the file has more than 8 MiB; get it over HTTP, at the url that its session names",
		}
	}
	out := &sdk.ResourceContents{URI: uri, MIMEType: http.DetectContentType(data)}
	if utf8.Valid(data) && strings.HasPrefix(out.MIMEType, "text/") {
		out.MIMEType, out.Text = "text/plain", string(data)
	} else {
		out.Blob = data
	}
	return out, nil
}

// Artifact is a file of a session.
type Artifact struct {
	Name  string `json:"name"`
	Bytes uint64 `json:"bytes"`
	URI   string `json:"uri" jsonschema:"the resource"`
	URL   string `json:"url" jsonschema:"where the bridge serves it over HTTP, with the same token"`
}

func (d *Handler) artifacts(ctx context.Context, c *caller, ref subject.Ref) ([]Artifact, error) {
	all, err := call[[]Artifact](ctx, d, c, "listArtifacts", map[string]any{"agent": ref.Agent, "session": ref.Session})
	if err != nil {
		return nil, err
	}
	all = all[:min(len(all), maxArtifacts)]
	for i := range all {
		all[i].URI = artifactURI(ref, all[i].Name)
	}
	return all, nil
}
