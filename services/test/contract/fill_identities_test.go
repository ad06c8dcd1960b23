package contract

import (
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/rights"
)

// completeIdentitiesQuery has what its operation needs.
func completeIdentitiesQuery(f *filler, p any) {
	q := p.(*coreapi.IdentitiesQuery)
	switch q.Op {
	case coreapi.IdentityInvite:
		c := f.value("service/core/charter").(rights.Charter)
		q.Charter = &c
	case coreapi.IdentityRotate, coreapi.IdentityRevoke:
		q.Name = "weather"
	}
}

// oneCredential leaves one of the two forms.
func oneCredential(f *filler, p any) {
	c := p.(*coreapi.Credential)
	if *c = (coreapi.Credential{Token: "eyJ0.eyJ1.c2ln"}); f.r.IntN(2) == 0 {
		*c = (coreapi.Credential{Creds: "-----BEGIN NATS USER JWT-----"})
	}
}

// grammaticalCharter names hook points with marks, and namespaces.
func grammaticalCharter(_ *filler, p any) {
	c := p.(*rights.Charter)
	for i := range c.Hooks {
		c.Hooks[i] = "before_act:judge"
	}
	for i := range c.Tools {
		c.Tools[i] = "weather"
	}
	for i := range c.Providers {
		c.Providers[i] = "*"
	}
}
