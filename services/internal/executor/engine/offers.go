package engine

import "sync"

// Offers holds the latest offer for [Config.Updates]: a new offer replaces one that was
// not received yet. Create one with [NewOffers].
type Offers struct {
	mu   sync.Mutex
	last chan Offer
}

// NewOffers returns an Offers without an offer.
func NewOffers() *Offers { return &Offers{last: make(chan Offer, 1)} }

// Put makes offer the next one to be received. It never blocks. From then on, the
// offer's slices belong to the receiver.
func (o *Offers) Put(offer Offer) {
	o.mu.Lock() // otherwise two calls could both find the channel empty
	defer o.mu.Unlock()
	select {
	case <-o.last:
	default:
	}
	o.last <- offer
}

// Updates returns the channel that delivers the offers.
func (o *Offers) Updates() <-chan Offer { return o.last }
