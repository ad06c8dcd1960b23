package bus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

const (
	// BucketClaims is the bucket of bodies of messages on their way.
	BucketClaims = "claims"
	// ClaimThreshold is the maximum size, in bytes, of a body inside a request or reply.
	ClaimThreshold = 256 << 10
	// MaxClaimBytes is the maximum size, in bytes, of a body that is stored or fetched.
	MaxClaimBytes = 64 << 20

	claimWait = 30 * time.Second // for the body of an answer, which is not requested again
)

// PutClaim stores the body of a message in transit and returns its reference, which contains
// the body's hash. The body is kept for a day, unless core is configured otherwise.
func (b *Bus) PutClaim(ctx context.Context, data []byte) (ref string, err error) {
	sum := sha256.Sum256(data)
	ref = hex.EncodeToString(sum[:]) + "." + nuid.Next()
	return ref, b.PutObject(ctx, BucketClaims, ref, data)
}

// GetClaim fetches a body by its reference and checks its hash. It returns [ErrNotFound] if
// the body no longer exists.
func (b *Bus) GetClaim(ctx context.Context, ref string) ([]byte, error) {
	want, _, ok := strings.Cut(ref, ".")
	if !ok || len(ref) > 128 {
		return nil, Errorf(CodeInvalidArgument, "invalid claim reference %.80q", ref)
	}
	data, err := b.GetObject(ctx, BucketClaims, ref)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want {
		return nil, Errorf(CodeConflict, "claim %s: the hash of the stored body does not match", ref)
	}
	return data, nil
}

// claimLarge moves the body of m into a claim if it is large.
func (b *Bus) claimLarge(ctx context.Context, m *nats.Msg) error {
	if m.Header != nil {
		m.Header.Del(ClaimHeader) // only this package sets it
	}
	if len(m.Data) <= ClaimThreshold || b.cfg.party { // a party may not use the bucket of claims
		return nil
	}
	ref, err := b.PutClaim(ctx, m.Data)
	if err != nil {
		return fmt.Errorf("storing a body of %d bytes: %w", len(m.Data), err)
	}
	if m.Header == nil {
		m.Header = make(nats.Header, 2)
	}
	m.Header[ClaimHeader] = []string{ref}
	m.Data = nil
	return nil
}

// resolveClaim replaces a reference by the body.
func (b *Bus) resolveClaim(ctx context.Context, m *nats.Msg) error {
	ref := m.Header.Get(ClaimHeader)
	if ref == "" {
		return nil
	}
	data, err := b.GetClaim(ctx, ref)
	if err != nil {
		return err
	}
	m.Data = data
	m.Header.Del(ClaimHeader)
	return nil
}
