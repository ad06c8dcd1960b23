package access

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"skandha.dev/services/internal/hosts"
	"skandha.dev/services/internal/logburst"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/passkey"
	"skandha.dev/services/uibridge/request"
)

// The subprotocols with which a page of another origin presents its token.
const (
	Protocol     = "skandha.v1"
	BearerPrefix = "skandha.bearer."
)

// Deps are the package's dependencies.
type Deps struct {
	Log     *slog.Logger // default slog.Default
	DataDir string       // where the owner's token is kept; empty: the token must be configured
	// Refuse answers a refused request in the error format of its path; default
	// [request.Refuse]. A status of 0 means that of the error.
	Refuse func(w http.ResponseWriter, r *http.Request, err error, status int)
	// Body returns the media type that a body on a path must have; nil: application/json on all. An
	// HTML form of another page can send multipart/form-data, but neither its cookie with the key of
	// the login nor an allowed origin.
	Body func(path string) string
}

// Access authenticates and limits requests. It is safe for concurrent use.
type Access struct {
	cfg        Config
	log        *slog.Logger
	refuse     func(w http.ResponseWriter, r *http.Request, err error, status int)
	body       func(path string) string
	bursts     *logburst.Log // for requests over a limit
	hosts      hosts.Set
	pages      http.CrossOriginProtection
	proxies    []netip.Prefix
	tokens     []token
	made       string
	provider   *provider // nil: people log in with tokens alone
	key        []byte    // signs what browsers keep for a moment; nil without the owner's token
	passkeys   *passkey.Keys
	codes      codes
	logouts    *logouts
	allowances map[string]allowance // by token
	failures   *failures
	open       *open
	anonymous  *anonymous

	count struct {
		logins, codes, failed, limited atomic.Int64
		mu                             sync.Mutex
		refused                        map[string]int64 // by reason
	}
}

// New reads the secrets and returns an Access; an error names the field.
func New(cfg Config, deps Deps) (*Access, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if deps.Log == nil {
		deps.Log = slog.Default()
	}
	if deps.Refuse == nil {
		deps.Refuse = func(w http.ResponseWriter, _ *http.Request, err error, status int) { request.Refuse(w, err, status) }
	}
	if deps.Body == nil {
		deps.Body = func(string) string { return "application/json" }
	}
	tokens, owner, made, err := readTokens(cfg, deps.DataDir)
	if err != nil {
		return nil, err
	}
	ended, err := readLogouts(deps.DataDir)
	if err != nil {
		return nil, err
	}
	proxies, err := parseProxies(cfg.Proxies)
	if err != nil {
		return nil, err
	}
	a := &Access{
		cfg: cfg, log: deps.Log, refuse: deps.Refuse, body: deps.Body, bursts: logburst.New(deps.Log),
		hosts: hosts.Of(slices.Concat(cfg.Hosts, hostOfURL(cfg.URL))), proxies: proxies, tokens: tokens, made: made,
		logouts: ended, allowances: map[string]allowance{}, failures: newFailures(), open: newOpen(cfg.Limits),
		anonymous: &anonymous{max: cfg.Limits.Anonymous, conns: map[net.Conn]arrival{}, of: map[netip.Addr]int{}},
	}
	a.count.refused = map[string]int64{}
	if owner != "" {
		if a.key, err = derived(owner, "moment v1"); err != nil {
			return nil, fmt.Errorf("deriving a key: %w", err)
		}
	}
	a.passkeys = passkey.New(deps.DataDir, a.key)
	if cfg.OIDC.Issuer != "" {
		if a.key == nil {
			return nil, errors.New("oidc: logins are signed with a key from the owner's token; set owner or a data directory")
		}
		if a.provider, err = newProvider(cfg.OIDC, a.key); err != nil {
			return nil, err
		}
	}
	for _, t := range tokens {
		if t.short {
			deps.Log.Warn("wrong guesses from its address can delay a short token; use a longer one",
				"token", t.Name, "min_characters", unguessable)
		}
		a.allowances[t.Name] = newAllowance(cfg.Limits)
	}
	return a, nil
}

// Made returns the owner's token if [New] generated it, to be shown once; else "".
func (a *Access) Made() string { return a.made }

// Valid returns nil if the principal's token and login are still valid, or else an error
// that says why not.
func (a *Access) Valid(p contract.Principal) error {
	switch {
	case a.named(p.Name) == nil:
		return unauthenticated("not logged in")
	case p.Login != "" && a.logouts.has(p.Login):
		return unauthenticated("this browser has logged out; log in again")
	}
	if err := expired(p); err != nil {
		return err
	}
	return nil
}

// Counters returns the package's figures, by name.
func (a *Access) Counters() map[string]int64 {
	out := map[string]int64{
		"uibridge_logins": a.count.logins.Load(), "uibridge_codes": a.count.codes.Load(),
		"uibridge_auth_failed": a.count.failed.Load(),
		"uibridge_limited":     a.count.limited.Load(), "uibridge_connections": int64(a.open.requests.Len()),
		"uibridge_anonymous": int64(a.anonymous.len()), "uibridge_anonymous_dropped": a.anonymous.dropped.Load(),
	}
	a.count.mu.Lock()
	defer a.count.mu.Unlock()
	for reason, n := range maps.All(a.count.refused) {
		out["uibridge_refused_"+reason] = n
	}
	return out
}

// Protect lets allowed requests through; see the package's documentation. Handlers get the
// requester with [contract.PrincipalOf]; outside /v1/ and for logins it is the zero
// Principal.
func (a *Access) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ref := a.shape(r); ref != nil {
			a.reject(w, r, ref)
			return
		}
		if a.cors(w, r) {
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, a.cfg.Limits.Body)
		if !isAPI(r) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		if isLogin(r) {
			next.ServeHTTP(w, r)
			return
		}
		a.admit(w, r, next)
	})
}

// admit lets a request through if it is authenticated and within its limits.
func (a *Access) admit(w http.ResponseWriter, r *http.Request, next http.Handler) {
	p, ref := a.authenticate(w, r)
	if ref != nil {
		a.reject(w, r, ref)
		return
	}
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		a.anonymous.leave(c)
	}
	use := useOf(r)
	if err := a.allowances[p.Name].http[use].spend(); err != nil {
		a.reject(w, r, &refusal{err, 0, "rate"})
		return
	}
	ctx, leave, err := a.open.enter(contract.WithPrincipal(r.Context(), p), p, safe(r.Method), use)
	if err != nil {
		a.reject(w, r, &refusal{err, 0, "connections"})
		return
	}
	defer leave()
	if err := a.Valid(p); err != nil { // the login may have ended just before the request was registered
		a.reject(w, r, &refusal{contract.ErrorOf(err), 0, "unauthenticated"})
		return
	}
	r = r.Clone(ctx)
	r.Header.Del("Authorization")
	r.Header.Del("Cookie")
	r.Header.Del(KeyHeader)
	withoutSecrets(r.Header)
	next.ServeHTTP(w, r)
}

// authenticate returns the principal of a request.
func (a *Access) authenticate(w http.ResponseWriter, r *http.Request) (contract.Principal, *refusal) {
	text, shown, err := shownToken(r)
	if err == nil && shown {
		t, ref := a.holder(r, text)
		if ref != nil {
			return contract.Principal{}, ref
		}
		return t.Principal, nil
	}
	if err != nil {
		return contract.Principal{}, &refusal{err, 0, "unauthenticated"}
	}
	cookies := r.CookiesNamed(a.cookieName(r))
	browserKey := shownKey(r)
	err = unauthenticated("log in: Authorization: Bearer …, or open the page with a one-time code (`skandha ui`)")
	if len(cookies) > 0 && browserKey == "" {
		err = unauthenticated("a cookie is not enough; send the key from the login's answer in the header " +
			KeyHeader + ", or log in again")
		cookies = nil
	}
	for _, c := range cookies[:min(len(cookies), 4)] {
		t, said, bad := a.readCookie(c.Value, browserKey)
		if bad != nil {
			err = bad
			continue
		}
		// Every browser sends Origin with such requests, so one without it does not come from
		// a browser that logged in here.
		if (!safe(r.Method) || isUpgrade(r)) && !a.ownOrigin(r, r.Header.Get("Origin")) {
			return contract.Principal{}, forbidOrigin(
				"a cookie is only valid from the bridge's own page; programs and other pages must send a token")
		}
		if !isUpgrade(r) {
			a.slide(w, r, t, said, browserKey)
		}
		return a.loggedIn(t, said), nil
	}
	// Signatures cannot be guessed, so this does not count as a wrong secret
	return contract.Principal{}, &refusal{err, 0, "unauthenticated"}
}

// holder returns the token that the text belongs to. While an address sends too many wrong
// secrets, a guessable token is refused from there even if it is right: otherwise the limit
// would not slow guessing. A token that cannot be guessed is never delayed by the guesses
// of others.
func (a *Access) holder(r *http.Request, text string) (*token, *refusal) {
	t, err := a.tokenOf(text)
	switch {
	case t == nil:
		return nil, a.wrong(r, err)
	case t.short:
		if blocked := a.failures.blocked(a.address(r)); blocked != nil {
			return nil, &refusal{blocked, 0, "guessing"}
		}
	}
	if err != nil { // the token has expired
		return nil, &refusal{err, 0, "unauthenticated"}
	}
	return t, nil
}

// wrong counts a wrong secret. An address that sends too many must wait.
func (a *Access) wrong(r *http.Request, err *contract.Error) *refusal {
	a.count.failed.Add(1)
	addr := a.address(r)
	if blocked := a.failures.blocked(addr); blocked != nil {
		return &refusal{blocked, 0, "guessing"}
	}
	a.failures.failed(addr)
	return &refusal{err, 0, "unauthenticated"}
}

// shownToken returns the token that the request carries, other than in a cookie.
func shownToken(r *http.Request) (text string, shown bool, err *contract.Error) {
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		scheme, text, ok := strings.Cut(values[0], " ")
		if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") {
			return "", false, &contract.Error{
				Code: contract.CodeUnauthenticated, Field: "Authorization",
				Message: "want one header of the form: Bearer <token>",
			}
		}
		return strings.TrimSpace(text), true, nil
	}
	for _, p := range protocols(r.Header) {
		if text, ok := strings.CutPrefix(p, BearerPrefix); ok {
			return text, true, nil
		}
	}
	return "", false, nil
}

// shownKey returns the browser's key that the request carries, or "".
func shownKey(r *http.Request) string {
	for _, p := range protocols(r.Header) {
		if key, ok := strings.CutPrefix(p, KeyPrefix); ok {
			return key
		}
	}
	return r.Header.Get(KeyHeader)
}

const protocolHeader = "Sec-WebSocket-Protocol"

func protocols(h http.Header) (out []string) {
	for _, v := range h.Values(protocolHeader) {
		for p := range strings.SplitSeq(v, ",") {
			out = append(out, strings.TrimSpace(p))
		}
	}
	return out
}

// withoutSecrets removes the token and the browser's key from the subprotocols.
func withoutSecrets(h http.Header) {
	if all := protocols(h); len(all) > 0 {
		all = slices.DeleteFunc(all, func(p string) bool {
			return strings.HasPrefix(p, BearerPrefix) || strings.HasPrefix(p, KeyPrefix)
		})
		h.Del(protocolHeader)
		if len(all) > 0 {
			h.Set(protocolHeader, strings.Join(all, ", "))
		}
	}
}

// reject answers, logs and counts a refusal.
func (a *Access) reject(w http.ResponseWriter, r *http.Request, ref *refusal) {
	status := ref.status
	if status == 0 {
		status = ref.Status()
	}
	a.count.mu.Lock()
	a.count.refused[ref.reason]++
	a.count.mu.Unlock()
	log := a.log.Info
	if ref.reason == "rate" || ref.reason == "connections" || ref.reason == "guessing" {
		log = func(msg string, args ...any) { a.bursts.Log(slog.LevelInfo, ref.reason, msg, args...) }
	}
	log("request refused", append([]any{
		"status", status, "reason", ref.reason, "field", ref.Field, "error", ref.Message, "from", a.address(r).String(),
	}, a.described(r)...)...)
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="skandha"`)
	}
	a.refuse(w, r, ref.Error, status)
}

// asTooLarge distinguishes a body that is too large from one that is invalid.
func asTooLarge(err error, want string) *contract.Error {
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &contract.Error{
			Code:    contract.CodeTooLarge,
			Message: "body too large; the limit is " + strconv.FormatInt(e.Limit, 10) + " bytes",
		}
	}
	// err's text is not used: it quotes the body, which may contain a secret, and this is
	// logged.
	return contract.Invalid("", want)
}
