package access

import (
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"skandha.dev/services/uibridge/contract"
)

// refusal is the reason why a request is refused.
type refusal struct {
	*contract.Error
	status int    // 0: the error's own
	reason string // in counters and logs
}

func refuse(status int, reason, field, message string) *refusal {
	return &refusal{&contract.Error{Code: contract.CodeInvalid, Field: field, Message: message}, status, reason}
}

func forbidOrigin(message string) *refusal {
	return &refusal{&contract.Error{Code: contract.CodeForbidden, Field: "Origin", Message: message}, 0, "origin"}
}

// shape checks what can be checked without authentication.
func (a *Access) shape(r *http.Request) *refusal {
	if !a.hosts.Has(r.Host) {
		return refuse(http.StatusMisdirectedRequest, "host", "Host",
			"unknown host; add it to ui.hosts if it is this bridge's")
	}
	if p := r.URL.Path; p == "" || p[0] != '/' || path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/" {
		return refuse(http.StatusBadRequest, "path", "path", "not canonical; remove empty, . and .. segments")
	}
	if name := secretInQuery(r.URL.RawQuery); name != "" && !isCallback(r) {
		return refuse(http.StatusBadRequest, "query", name,
			"secrets are not accepted in URLs, because URLs end up in logs and histories; "+
				"send the token in Authorization: Bearer, and replace this one")
	}
	if ref := a.origin(r); ref != nil {
		return ref
	}
	if !safe(r.Method) && (r.ContentLength != 0 || len(r.TransferEncoding) > 0) &&
		!isOne(r.Header.Values("Content-Type"), a.body(r.URL.Path)) {
		return refuse(http.StatusUnsupportedMediaType, "content_type", "Content-Type", "want "+a.body(r.URL.Path))
	}
	return nil
}

// origin refuses requests from pages of unknown origins. It is stricter than the standard
// library's check, which covers requests that change something: an origin must have the right
// scheme, too, and pages of other origins may not read or open WebSockets either.
func (a *Access) origin(r *http.Request) *refusal {
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) > 1:
		return forbidOrigin("sent more than once")
	case len(origins) == 1 && (a.ownOrigin(r, origins[0]) || a.configuredOrigin(origins[0])):
		return nil
	case len(origins) == 1:
		return forbidOrigin("origin not allowed; add it to ui.origins, or set ui.url if it is the bridge's own")
	}
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "" { // a program, or an old browser; its use of a cookie is checked later
		return nil
	}
	if isUpgrade(r) || a.pages.Check(r) != nil {
		return forbidOrigin("missing; a browser must send it with this request")
	}
	if isCallback(r) && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil // it changes nothing without the cookie of the login
	}
	if (site == "cross-site" || site == "same-site") && (isAPI(r) || r.Header.Get("Sec-Fetch-Mode") != "navigate") {
		return forbidOrigin("request from a page of another origin")
	}
	return nil
}

// ownOrigin reports whether the origin is that of the bridge's own page.
func (a *Access) ownOrigin(r *http.Request, origin string) bool {
	scheme := "http://"
	if a.secure(r) {
		scheme = "https://"
	}
	return origin == scheme+strings.ToLower(r.Host) || a.cfg.URL != "" && origin == a.cfg.URL
}

// configuredOrigin reports whether the origin is a configured one.
func (a *Access) configuredOrigin(origin string) bool { return slices.Contains(a.cfg.Origins, origin) }

// cors lets a page of a configured origin read the answer, and answers its browser's
// preflight requests. Cookies are not allowed for it.
func (a *Access) cors(w http.ResponseWriter, r *http.Request) (answered bool) {
	if len(a.cfg.Origins) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if !a.configuredOrigin(origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Retry-After, Mcp-Session-Id")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	h.Set("Access-Control-Allow-Headers", allowedHeaders(r.Header.Get("Access-Control-Request-Headers")))
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// allowedHeaders returns the headers that a page of a configured origin asks for. Further
// ones that libraries send are harmless, because they have no meaning here.
func allowedHeaders(asked string) string {
	const usual = "Authorization, Content-Type, Last-Event-ID"
	if asked == "" || len(asked) > 1024 ||
		strings.Trim(asked, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ") != "" {
		return usual
	}
	return asked
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// isAPI reports whether the request is for more than the page's files, which are public.
func isAPI(r *http.Request) bool {
	below := func(dir string) bool { return r.URL.Path == dir || strings.HasPrefix(r.URL.Path, dir+"/") }
	return below("/v1") || below("/mcp")
}

func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// isOne reports whether there is one media type, and it is the wanted one.
func isOne(types []string, want string) bool {
	if len(types) != 1 {
		return false
	}
	t, _, _ := strings.Cut(types[0], ";")
	return strings.EqualFold(strings.TrimSpace(t), want)
}

// secretNames are query parameters that carry secrets in other systems.
var secretNames = []string{
	"token", "access_token", "auth_token", "id_token", "api_key", "apikey", "api-key", "auth", "authorization", "bearer",
	"code", "password", "secret",
}

// secretInQuery returns the name of the first parameter in secretNames, or "".
func secretInQuery(query string) string {
	for part := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		name, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if name = strings.ToLower(strings.TrimSpace(name)); slices.Contains(secretNames, name) {
			return name
		}
	}
	return ""
}

// behindProxy reports whether the request comes through a configured proxy.
func (a *Access) behindProxy(r *http.Request) bool {
	return len(a.proxies) > 0 && a.isProxy(peer(r.RemoteAddr))
}

func (a *Access) isProxy(addr netip.Addr) bool {
	return slices.ContainsFunc(a.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// address returns the client's address: the peer, or the one that configured proxies
// report.
func (a *Access) address(r *http.Request) netip.Addr {
	addr := peer(r.RemoteAddr)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && a.isProxy(addr); i-- { // every proxy appends the address of its peer
		next, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		addr = next.Unmap()
	}
	if addr.Is6() { // one machine can use any address of its /64 network
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			addr = p.Addr()
		}
	}
	return addr
}

func peer(remote string) netip.Addr {
	p, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr().Unmap()
}

// described returns a request's attributes for the log. A client may paste a secret
// anywhere, so only known values are logged; a URL's query never is.
func (a *Access) described(r *http.Request) []any {
	const other = "(unknown)"
	known := func(is bool, s string) string {
		if is || s == "" {
			return s
		}
		return other
	}
	parts := strings.Split(r.URL.Path, "/")
	for i, p := range parts {
		if p != "" && !slices.Contains(pathWords, p) {
			parts[i] = "*"
		}
	}
	origin := r.Header.Get("Origin")
	return []any{
		"method", known(slices.Contains(methods, r.Method), r.Method), "path", strings.Join(parts[:min(len(parts), 10)], "/"),
		"host", known(a.hosts.Has(r.Host), r.Host),
		"origin", known(a.ownOrigin(r, origin) && a.hosts.Has(r.Host) || a.configuredOrigin(origin), origin),
	}
}

var (
	methods = []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions,
	}
	// pathWords are the fixed parts of the bridge's paths.
	pathWords = []string{
		"v1", "auth", "token", "code", "ways", "oidc", "start", "callback", "finish", "passkeys", "new", "challenge", "logout", "me", "ws", "agents", "sessions", "events", "inputs", "confirmations",
		"cancels", "commands",
		"artifacts", "rpc", "agui", "chat", "completions", "responses", "models", "assets", "audio", "transcriptions", "speech", "camera",
		"mcp",
	}
)
