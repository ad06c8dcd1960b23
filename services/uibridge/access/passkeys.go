package access

import (
	"net/http"

	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/passkey"
	"skandha.dev/services/uibridge/request"
)

const pathPasskeys = "/v1/auth/passkeys"

// maxProof is the maximum size of what an authenticator says, in bytes.
const maxProof = 64 << 10

// passkeyRoutes serves the registration and use of passkeys, to browsers that are logged in.
func (a *Access) passkeyRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+pathPasskeys, func(w http.ResponseWriter, r *http.Request) {
		n, err := a.passkeys.Count(contract.PrincipalOf(r.Context()), a.originOf(r))
		a.reply(w, r, map[string]int{"count": n}, err)
	})
	mux.HandleFunc("POST "+pathPasskeys+"/new", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Proof *contract.Proof `json:"proof"`
		}
		if a.readObject(w, r, maxProof, "want a JSON object, with proof if there is a passkey already", &body) {
			o, err := a.passkeys.New(contract.PrincipalOf(r.Context()), a.originOf(r), body.Proof)
			a.reply(w, r, o, err)
		}
	})
	mux.HandleFunc("POST "+pathPasskeys, func(w http.ResponseWriter, r *http.Request) {
		var body contract.Proof
		if a.readObject(w, r, maxProof, "want a JSON object with state and credential", &body) {
			p := contract.PrincipalOf(r.Context())
			err := a.passkeys.Register(p, body)
			if err == nil {
				a.log.Info("a passkey was registered", "person", p.Name)
			}
			a.reply(w, r, map[string]bool{"registered": true}, err)
		}
	})
	mux.HandleFunc("POST "+pathPasskeys+"/challenge", func(w http.ResponseWriter, r *http.Request) {
		var body passkey.Subject
		if a.readObject(w, r, maxLogin, "want a JSON object with agent, session, confirmationId and hash", &body) {
			o, err := a.passkeys.Challenge(contract.PrincipalOf(r.Context()), a.originOf(r), body)
			a.reply(w, r, o, err)
		}
	})
}

// reply answers with v, or with the error.
func (a *Access) reply(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err == nil {
		request.JSON(w, http.StatusOK, v)
		return
	}
	e := contract.ErrorOf(err)
	if e.Code == contract.CodeInternal {
		a.log.Error("a request about passkeys failed", "error", err)
	}
	a.reject(w, r, &refusal{e, 0, "passkey"})
}

// Approves returns nil if the answer carries an assertion of the principal's passkey for exactly this
// answer.
func (a *Access) Approves(p contract.Principal, answer contract.Answer) error {
	return a.passkeys.Verify(p, passkey.Subject{
		Agent: string(answer.Ref.Agent), Session: string(answer.Ref.Session), ConfirmationID: answer.ConfirmationID, Hash: answer.Hash,
	}, answer.Passkey)
}
