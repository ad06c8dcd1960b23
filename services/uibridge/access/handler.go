package access

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// The handler's paths.
const (
	pathToken  = "/v1/auth/token"
	pathCode   = "/v1/auth/code"
	pathLogout = "/v1/auth/logout"
	pathMe     = "/v1/auth/me"

	pathWays     = "/v1/auth/ways"
	pathStart    = "/v1/auth/oidc/start"
	pathCallback = "/v1/auth/oidc/callback"
	pathFinish   = "/v1/auth/oidc/finish"
)

// maxLogin is the maximum size of a login's body, in bytes.
const maxLogin = 4 << 10

// loginWait is the time that a client has to send a login.
const loginWait = 5 * time.Second

// isLogin reports whether the request is a login, which needs no authentication.
func isLogin(r *http.Request) bool {
	return slices.Contains([]string{pathToken, pathCode, pathWays, pathStart, pathCallback, pathFinish}, r.URL.Path)
}

// isCallback reports whether a browser brings an answer of the provider, which is a page of another
// origin.
func isCallback(r *http.Request) bool {
	return r.URL.Path == pathCallback && r.Method == http.MethodGet && !isUpgrade(r)
}

// Handler serves /v1/auth/. It must run behind [Access.Protect]. Its paths:
//
//	POST /v1/auth/token {"token": "…"}  logs in with a token
//	POST /v1/auth/code {"code": "…"}    logs in with a one-time code
//	GET /v1/auth/ways                   says how people may log in
//	POST /v1/auth/oidc/start            answers with the URL of the provider of OpenID Connect
//	GET /v1/auth/oidc/callback          takes the provider's answer, and leads to the page
//	POST /v1/auth/oidc/finish           logs the page in that began the login
//	GET /v1/auth/passkeys               counts the person's passkeys for this page
//	POST /v1/auth/passkeys/new          begins the registration of a passkey
//	POST /v1/auth/passkeys              keeps it
//	POST /v1/auth/passkeys/challenge    begins an assertion, for an approval
//	POST /v1/auth/logout                ends the browser's login and its connections
//	GET /v1/auth/me                     returns the requester's principal
//
// The answer to a login has the [contract.Principal] as body, a cookie, and in [KeyHeader]
// the key that must be sent with the cookie.
func (a *Access) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathToken, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Token string `json:"token"`
		}
		if a.read(w, r, "token", &body) {
			t, ref := a.holder(r, body.Token)
			a.finish(w, r, t, claims{}, ref)
		}
	})
	mux.HandleFunc("POST "+pathCode, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Code string `json:"code"`
		}
		if !a.read(w, r, "code", &body) {
			return
		}
		if err := a.codes.use(body.Code, time.Now()); err != nil {
			a.finish(w, r, nil, claims{}, a.wrong(r, err))
			return
		}
		a.finish(w, r, a.named(Owner), claims{}, nil)
	})
	mux.HandleFunc("GET "+pathWays, func(w http.ResponseWriter, _ *http.Request) {
		ways := map[string]any{"token": true}
		if a.provider != nil {
			ways["oidc"] = map[string]string{"label": a.cfg.OIDC.Label}
		}
		request.JSON(w, http.StatusOK, ways)
	})
	if a.provider != nil {
		mux.HandleFunc("POST "+pathStart, a.start)
		mux.HandleFunc("GET "+pathCallback, a.callback)
		mux.HandleFunc("POST "+pathFinish, a.land)
	}
	a.passkeyRoutes(mux)
	mux.HandleFunc("POST "+pathLogout, func(w http.ResponseWriter, r *http.Request) {
		if err := a.logOut(w, r, contract.PrincipalOf(r.Context())); err != nil {
			a.log.Error("storing a logout failed; it is lost when the bridge restarts", "error", err)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET "+pathMe, func(w http.ResponseWriter, r *http.Request) {
		request.JSON(w, http.StatusOK, contract.PrincipalOf(r.Context()))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		request.Refuse(w, &contract.Error{
			Code: contract.CodeNotFound, Message: "unknown path, or wrong method for it",
		}, 0)
	})
	return mux
}

// read decodes the body. If it fails, it has sent the answer.
func (a *Access) read(w http.ResponseWriter, r *http.Request, field string, into any) bool {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(loginWait)) // not every writer supports deadlines
	return a.readObject(w, r, maxLogin, `want a JSON object with a single field "`+field+`", a string`, into)
}

// readObject decodes a body of up to limit bytes. If it fails, it has sent the answer.
func (a *Access) readObject(w http.ResponseWriter, r *http.Request, limit int64, want string, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return true
		}
		err = errors.New("trailing data")
	}
	e := asTooLarge(err, want)
	a.reject(w, r, &refusal{e, 0, "body"})
	return false
}

// finish sets the cookie, or answers with the refusal.
func (a *Access) finish(w http.ResponseWriter, r *http.Request, t *token, c claims, ref *refusal) {
	if ref != nil {
		a.reject(w, r, ref)
		return
	}
	request.JSON(w, http.StatusOK, a.logIn(w, r, t, c))
}
