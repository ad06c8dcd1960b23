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

// refusal is why a request is not let in.
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

// shape looks at what can be judged without knowing who is asking.
func (a *Access) shape(r *http.Request) *refusal {
	if !a.hosts.Has(r.Host) {
		return refuse(http.StatusMisdirectedRequest, "host", "Host", "this bridge is not called that; name it in ui.hosts if it is")
	}
	if p := r.URL.Path; p == "" || p[0] != '/' || path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/" {
		return refuse(http.StatusBadRequest, "path", "path", "it is not in its shortest form")
	}
	if name := secretInQuery(r.URL.RawQuery); name != "" {
		return refuse(http.StatusBadRequest, "query", name,
			"a URL is written into logs and histories, so no secret is taken from one: show the token in Authorization: Bearer, and replace this one")
	}
	if ref := a.origin(r); ref != nil {
		return ref
	}
	if !safe(r.Method) && (r.ContentLength != 0 || len(r.TransferEncoding) > 0) && !isJSON(r.Header.Values("Content-Type")) {
		return refuse(http.StatusUnsupportedMediaType, "content_type", "Content-Type", "want application/json")
	}
	return nil
}

// origin keeps pages of others out.
func (a *Access) origin(r *http.Request) *refusal {
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) > 1:
		return forbidOrigin("there are several")
	case len(origins) == 1 && (a.ownOrigin(r, origins[0]) || a.friend(origins[0])):
		return nil
	case len(origins) == 1:
		return forbidOrigin("pages of this origin are not let in; name it in ui.origins, or in ui.url if it is the bridge's own")
	}
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "" { // a program, or an old browser; what it may do with a cookie is looked at later
		return nil
	}
	if isUpgrade(r) || !safe(r.Method) {
		return forbidOrigin("a browser says where it comes from, and this one does not")
	}
	if (site == "cross-site" || site == "same-site") && (isAPI(r) || r.Header.Get("Sec-Fetch-Mode") != "navigate") {
		return forbidOrigin("this was asked for by a page of another origin")
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

// friend reports whether the origin is a configured one.
func (a *Access) friend(origin string) bool { return slices.Contains(a.cfg.Origins, origin) }

// share lets a page of a configured origin read the answer, and answers what its
// browser asks first. Cookies are not for it.
func (a *Access) share(w http.ResponseWriter, r *http.Request) (answered bool) {
	if len(a.cfg.Origins) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if !a.friend(origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Retry-After")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	h.Set("Access-Control-Allow-Headers", allowedHeaders(r.Header.Get("Access-Control-Request-Headers")))
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// allowedHeaders are those that a page of a configured origin asks for: what libraries
// send besides means nothing here.
func allowedHeaders(asked string) string {
	const usual = "Authorization, Content-Type, Last-Event-ID"
	if asked == "" || len(asked) > 1024 || strings.Trim(asked, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ") != "" {
		return usual
	}
	return asked
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// isAPI reports whether the request is for more than the page, which is the same for
// everybody.
func isAPI(r *http.Request) bool { return r.URL.Path == "/v1" || strings.HasPrefix(r.URL.Path, "/v1/") }

func isUpgrade(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

func isJSON(types []string) bool {
	if len(types) != 1 {
		return false
	}
	t, _, _ := strings.Cut(types[0], ";")
	return strings.EqualFold(strings.TrimSpace(t), "application/json")
}

// secretNames are parameters that carry secrets elsewhere.
var secretNames = []string{"token", "access_token", "auth_token", "id_token", "api_key", "apikey", "api-key", "auth", "authorization", "bearer", "code", "password", "secret"}

// secretInQuery is the name of the first parameter that is one of them.
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

// behindProxy reports whether the request comes by a configured proxy.
func (a *Access) behindProxy(r *http.Request) bool {
	return len(a.proxies) > 0 && a.isProxy(peer(r.RemoteAddr))
}

func (a *Access) isProxy(addr netip.Addr) bool {
	return slices.ContainsFunc(a.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// address is who asks: the peer, or whom configured proxies name.
func (a *Access) address(r *http.Request) netip.Addr {
	addr := peer(r.RemoteAddr)
	said := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(said) - 1; i >= 0 && a.isProxy(addr); i-- { // what a stranger says stands before what a proxy says
		next, err := netip.ParseAddr(strings.TrimSpace(said[i]))
		if err != nil {
			break
		}
		addr = next.Unmap()
	}
	if addr.Is6() { // a machine has as many addresses as it likes in its network
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

// described is a request for the log. A secret may be pasted into anything that a client
// writes, so only what is known beforehand is logged as it is; a URL's query never is.
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
		"origin", known(a.ownOrigin(r, origin) && a.hosts.Has(r.Host) || a.friend(origin), origin),
	}
}

var (
	methods = []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
	}
	// pathWords are the fixed parts of the bridge's paths.
	pathWords = []string{
		"v1", "auth", "token", "code", "logout", "me", "ws", "agents", "sessions", "events", "inputs", "confirmations", "cancels", "commands",
		"artifacts", "rpc", "agui", "chat", "completions", "responses", "models", "assets",
	}
)
