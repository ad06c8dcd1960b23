package access

import (
	"errors"
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
	"skandha.dev/services/uibridge/request"
)

// The subprotocols by which a page of another origin shows its token.
const (
	Protocol     = "skandha.v1"
	BearerPrefix = "skandha.bearer."
)

// Deps are what the package stands on.
type Deps struct {
	Log     *slog.Logger // default slog.Default
	DataDir string       // where the owner's token is kept; empty: nowhere, and it must be configured
	// Refuse answers a request that is not let in, in the shape that its path has; default
	// [request.Refuse]. A status of 0 is the error's.
	Refuse func(w http.ResponseWriter, r *http.Request, err error, status int)
}

// Access decides who is let in. It may be used by any number of goroutines.
type Access struct {
	cfg        Config
	log        *slog.Logger
	refuse     func(w http.ResponseWriter, r *http.Request, err error, status int)
	bursts     *logburst.Log // of what is over a limit
	hosts      hosts.Set
	proxies    []netip.Prefix
	tokens     []token
	made       string
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

// New reads the secrets; an error names the field.
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
	tokens, made, err := readTokens(cfg, deps.DataDir)
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
		cfg: cfg, log: deps.Log, refuse: deps.Refuse, bursts: logburst.New(deps.Log),
		hosts: hosts.Of(slices.Concat(cfg.Hosts, hostOfURL(cfg.URL))), proxies: proxies, tokens: tokens, made: made,
		logouts: ended, allowances: map[string]allowance{}, failures: newFailures(), open: newOpen(cfg.Limits),
		anonymous: &anonymous{max: cfg.Limits.Anonymous, conns: map[net.Conn]arrival{}, of: map[netip.Addr]int{}},
	}
	a.count.refused = map[string]int64{}
	for _, t := range tokens {
		if t.short {
			deps.Log.Warn("a short token can be held up by wrong guesses from its address; use a longer one",
				"token", t.Name, "min_characters", unguessable)
		}
		a.allowances[t.Name] = newAllowance(cfg.Limits)
	}
	return a, nil
}

// Made is the owner's token if it was made by [New], to be shown once; else "".
func (a *Access) Made() string { return a.made }

// Valid says why a principal may do nothing any more; nil: he may do what his rights
// allow.
func (a *Access) Valid(p contract.Principal) error {
	switch {
	case a.named(p.Name) == nil:
		return unauthenticated("nobody has logged in")
	case p.Login != "" && a.logouts.has(p.Login):
		return unauthenticated("this browser has logged out; log in again")
	}
	if err := expired(p); err != nil {
		return err
	}
	return nil
}

// Counters are the figures of the package, by name.
func (a *Access) Counters() map[string]int64 {
	out := map[string]int64{
		"uibridge_logins": a.count.logins.Load(), "uibridge_codes": a.count.codes.Load(), "uibridge_auth_failed": a.count.failed.Load(),
		"uibridge_limited": a.count.limited.Load(), "uibridge_connections": int64(a.open.len()),
		"uibridge_anonymous": int64(a.anonymous.len()), "uibridge_anonymous_dropped": a.anonymous.dropped.Load(),
	}
	a.count.mu.Lock()
	defer a.count.mu.Unlock()
	for reason, n := range maps.All(a.count.refused) {
		out["uibridge_refused_"+reason] = n
	}
	return out
}

// Protect lets through what may pass; see the package's documentation. Handlers find
// who is asking with [contract.PrincipalOf]; outside /v1/ and for logging in it is
// nobody.
func (a *Access) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ref := a.shape(r); ref != nil {
			a.turnAway(w, r, ref)
			return
		}
		if a.share(w, r) {
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

// admit lets through who is known and within his limits.
func (a *Access) admit(w http.ResponseWriter, r *http.Request, next http.Handler) {
	p, ref := a.who(w, r)
	if ref != nil {
		a.turnAway(w, r, ref)
		return
	}
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		a.anonymous.leave(c)
	}
	use := useOf(r)
	if err := a.allowances[p.Name].http[use].spend(); err != nil {
		a.turnAway(w, r, &refusal{err, 0, "rate"})
		return
	}
	ctx, leave, err := a.open.enter(contract.WithPrincipal(r.Context(), p), p, safe(r.Method), use)
	if err != nil {
		a.turnAway(w, r, &refusal{err, 0, "connections"})
		return
	}
	defer leave()
	r = r.Clone(ctx)
	r.Header.Del("Authorization")
	r.Header.Del("Cookie")
	r.Header.Del(KeyHeader)
	withoutSecrets(r.Header)
	next.ServeHTTP(w, r)
}

// who says who is asking.
func (a *Access) who(w http.ResponseWriter, r *http.Request) (contract.Principal, *refusal) {
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
		err = unauthenticated("a cookie alone is not enough; send the key that the login answered as " +
			KeyHeader + ", or log in again")
		cookies = nil
	}
	for _, c := range cookies[:min(len(cookies), 4)] {
		t, said, bad := a.readCookie(c.Value, browserKey)
		if bad != nil {
			err = bad
			continue
		}
		// Every browser says the origin then, so its absence is no browser of ours.
		if (!safe(r.Method) || isUpgrade(r)) && !a.ownOrigin(r, r.Header.Get("Origin")) {
			return contract.Principal{}, forbidOrigin("a cookie is for the bridge's own page; programs and other pages show a token")
		}
		if !isUpgrade(r) {
			a.slide(w, r, t, said, browserKey)
		}
		return loggedIn(t, said), nil
	}
	return contract.Principal{}, &refusal{err, 0, "unauthenticated"} // nobody guesses a signature
}

// holder says whose the token is. While an address shows too many wrong ones, a token
// that could be guessed is refused there even if it is right: otherwise the brake would
// slow no guessing. One that cannot be guessed is never held up by the guesses of others.
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
	if err != nil { // it has expired
		return nil, &refusal{err, 0, "unauthenticated"}
	}
	return t, nil
}

// wrong counts a wrong secret. An address that shows too many must wait.
func (a *Access) wrong(r *http.Request, err *contract.Error) *refusal {
	a.count.failed.Add(1)
	addr := a.address(r)
	if blocked := a.failures.blocked(addr); blocked != nil {
		return &refusal{blocked, 0, "guessing"}
	}
	a.failures.failed(addr)
	return &refusal{err, 0, "unauthenticated"}
}

// shownToken is the token that the request itself shows.
func shownToken(r *http.Request) (text string, shown bool, err *contract.Error) {
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		scheme, text, ok := strings.Cut(values[0], " ")
		if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") {
			return "", false, &contract.Error{Code: contract.CodeUnauthenticated, Field: "Authorization", Message: "want one, Bearer and the token"}
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

// shownKey is the browser's key that the request shows; "" if it shows none.
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

// withoutSecrets takes the token and the browser's key out of the subprotocols.
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

// turnAway answers, logs and counts a refusal.
func (a *Access) turnAway(w http.ResponseWriter, r *http.Request, ref *refusal) {
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
	log("a request was refused", append([]any{
		"status", status, "reason", ref.reason, "field", ref.Field, "error", ref.Message, "from", a.address(r).String(),
	}, a.described(r)...)...)
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="skandha"`)
	}
	a.refuse(w, r, ref.Error, status)
}

// asTooLarge tells a body that is too large from one that is not what is wanted.
func asTooLarge(err error, want string) *contract.Error {
	var e *http.MaxBytesError
	if errors.As(err, &e) {
		return &contract.Error{Code: contract.CodeTooLarge, Message: "the body is too large; at most " + strconv.FormatInt(e.Limit, 10) + " bytes"}
	}
	// Not err's text, which quotes the body: that may hold a secret, and this is logged.
	return contract.Invalid("", want)
}
