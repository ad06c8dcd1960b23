package inspect

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// ArtifactInfo is an artifact in a listing.
type ArtifactInfo struct {
	Name   string    `json:"name"` // within its session, e.g. "t17-p1-c0/x9/plot.png"
	Ref    string    `json:"ref"`  // as in results: <agent>/<session>/<name>
	Bytes  uint64    `json:"bytes"`
	Stored time.Time `json:"stored"`
	URL    string    `json:"url"` // where Artifacts serves it, without a host
}

// maxArtifacts is the maximum length of a listing, which has the latest ones.
const maxArtifacts = 500

// listArtifacts lists a session's artifacts, from tools and people, latest first: at most
// the latest 500.
func (i *inspector) listArtifacts(ctx context.Context, p contract.Principal, q sessionQuery) ([]ArtifactInfo, error) {
	ref, err := reach(p, q.Agent, q.Session)
	if err != nil {
		return nil, err
	}
	prefix := prefixOf(ref)
	all, err := i.client.Journal.Artifacts(ctx, prefix)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(x, y journal.ArtifactInfo) int { return y.Stored.Compare(x.Stored) })
	out := make([]ArtifactInfo, 0, min(len(all), maxArtifacts))
	for _, a := range all[:min(len(all), maxArtifacts)] {
		name := strings.TrimPrefix(a.Name, prefix)
		out = append(out,
			ArtifactInfo{Name: name, Ref: a.Name, Bytes: a.Bytes, Stored: a.Stored, URL: ArtifactURL(ref, name)})
	}
	return out, nil
}

// prefixOf returns the prefix of the names of a session's artifacts. Ids contain no slash,
// so no session's prefix begins another's.
func prefixOf(ref subject.Ref) string { return ref.String() + "/" }

// ArtifactURL returns the URL at which Artifacts serves an artifact. The name is within its
// session.
func ArtifactURL(ref subject.Ref, name string) string {
	base := "/v1/agents/" + string(ref.Agent) + "/sessions/" + string(ref.Session) + "/artifacts/"
	if name == "" || path.Clean("/"+name) != "/"+name {
		return base + "?name=" + url.QueryEscape(name) // servers and browsers would clean such a path
	}
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return base + strings.Join(parts, "/")
}

// ArtifactsPattern is the pattern to serve Artifacts at.
const ArtifactsPattern = "GET /v1/agents/{agent}/sessions/{session}/artifacts/{name...}"

// fetches limits how many artifacts, of up to 64 MiB each, are in memory at a time. The
// caller that mounts the handler limits the time of an answer.
const fetches = 8

// Artifacts serves a session's artifacts at [ArtifactsPattern], behind the access layer.
// The name is within the session: that of the path or, for names that are not possible in a
// path, the query's name. The principal needs the right "see", and access to the agent.
//
// The content is untrusted. Pictures are recognized by their first bytes, and only PNG,
// JPEG, GIF and WebP are shown; everything else is downloaded, as bytes, whatever type it
// claims: no HTML and no SVG can run on this origin.
func Artifacts(d Deps) http.Handler {
	i := newInspector(d)
	slots := make(chan struct{}, fetches)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "private, no-cache")
		if !slot(r.Context(), slots) {
			request.Refuse(w, &contract.Error{
				Code: contract.CodeUnavailable, RetryAfterMS: 1000,
				Message: "too many artifacts are being fetched; try again in a moment",
			}, 0)
			return
		}
		defer func() { <-slots }()
		name, data, err := i.artifact(r)
		if err != nil {
			request.Refuse(w, i.refusal("an artifact", err), 0)
			return
		}
		serve(w, r, name, data)
	})
}

// slot waits for a free slot.
func slot(ctx context.Context, slots chan struct{}) bool {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// artifact fetches the artifact that the request names.
func (i *inspector) artifact(r *http.Request) (name string, data []byte, err error) {
	p := contract.PrincipalOf(r.Context())
	if err := p.Require(contract.See, ""); err != nil {
		return "", nil, err
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return "", nil, contract.Invalid("method", "is "+r.Method+"; artifacts are read-only")
	}
	ref, err := reach(p, r.PathValue("agent"), r.PathValue("session"))
	if err != nil {
		return "", nil, err
	}
	if name = r.PathValue("name"); name == "" {
		name = r.URL.Query().Get("name")
	}
	if name == "" || len(name) > 1024 || !utf8.ValidString(name) {
		return "", nil, contract.Invalid("name",
			"want an artifact's name within the session, at most 1024 bytes of UTF-8")
	}
	data, err = i.content(r.Context(), ref, name)
	return name, data, err
}

// content fetches an artifact by its name within the session.
func (i *inspector) content(ctx context.Context, ref subject.Ref, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	data, err := i.client.Journal.GetArtifact(ctx, prefixOf(ref)+name)
	if bus.CodeOf(err) == bus.CodeNotFound {
		return nil, &contract.Error{
			Code: contract.CodeNotFound, Message: "no such artifact in this session; listArtifacts lists them",
		}
	}
	return data, err
}

// ReadArtifact returns a function that fetches an artifact by its name within its session. The
// principal needs the right "see", and access to the agent. The content is untrusted, and has up to
// 64 MiB: the caller limits how many are in memory.
func ReadArtifact(
	d Deps,
) func(ctx context.Context, p contract.Principal, ref subject.Ref, name string) ([]byte, error) {
	i := newInspector(d)
	return func(ctx context.Context, p contract.Principal, ref subject.Ref, name string) ([]byte, error) {
		if err := p.Require(contract.See, ref.Agent); err != nil {
			return nil, err
		}
		data, err := i.content(ctx, ref, name)
		if err != nil {
			return nil, i.refusal("an artifact", err)
		}
		return data, nil
	}
}

func serve(w http.ResponseWriter, r *http.Request, name string, data []byte) {
	kind, shown := picture(data)
	h := w.Header()
	h.Set("Content-Type", kind)
	disposition := "attachment"
	if shown && !r.URL.Query().Has("download") {
		disposition = "inline"
	}
	h.Set("Content-Disposition", disposition+"; "+filename(name))
	sum := sha256.Sum256(data)
	h.Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data)) // also answers HEAD, If-None-Match and Range
}

// picture returns the type to serve data as, and whether it may be shown in a page.
func picture(data []byte) (kind string, shown bool) {
	switch kind = http.DetectContentType(data); kind {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return kind, true
	}
	return "application/octet-stream", false
}

// filename returns the last part of a name as a parameter of Content-Disposition (RFC
// 6266): in plain ASCII for old clients, and unchanged. It cannot end the header, name a
// folder or change the direction of the text around it.
func filename(name string) string {
	base := name[strings.LastIndexAny(name, `/\`)+1:]
	base = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && !strings.ContainsRune(`"<>|:*?%;`, r) {
			return r
		}
		return '_'
	}, base)
	if base = strings.TrimLeft(text.Cut(base, 150), ". "); base == "" {
		base = "artifact"
	}
	ascii := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf {
			return r
		}
		return '_'
	}, base)
	out := `filename="` + ascii + `"`
	if ascii != base {
		out += "; filename*=UTF-8''" + strings.ReplaceAll(url.QueryEscape(base), "+", "%20")
	}
	return out
}
