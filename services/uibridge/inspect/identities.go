package inspect

import (
	"context"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/uibridge/contract"
	"skandha.dev/services/uibridge/request"
)

// listIdentities returns who from outside may connect to the bus, by name.
func (i *inspector) listIdentities(ctx context.Context, p contract.Principal, _ none) (coreapi.IdentitiesPage, error) {
	return i.askIdentities(ctx, coreapi.IdentitiesQuery{Caller: p.Writer})
}

type revokeIdentity struct{ Identity string }

func (q *revokeIdentity) params() []request.Param {
	return []request.Param{{Name: "identity", Into: &q.Identity, Must: true}}
}

// revokeIdentity ends the credentials and connections of an identity, and returns it as it is then.
func (i *inspector) revokeIdentity(
	ctx context.Context, p contract.Principal, q revokeIdentity,
) (page coreapi.IdentitiesPage, err error) {
	if !subject.Valid(q.Identity) {
		return page, contract.Invalid("identity", notAnID)
	}
	i.log.Info("revocation requested", "identity", q.Identity, "by", p.Writer)
	return i.askIdentities(ctx, coreapi.IdentitiesQuery{
		Op: coreapi.IdentityRevoke, Name: subject.Identity(q.Identity), Caller: p.Writer,
	})
}

func (i *inspector) askIdentities(ctx context.Context, q coreapi.IdentitiesQuery) (page coreapi.IdentitiesPage, err error) {
	err = i.client.Administer(ctx, coreapi.VerbIdentities, q, &page)
	page.Identities = listed(page.Identities)
	return page, err
}
