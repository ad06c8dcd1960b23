package executor

import "sync"

// Offers holds the last offer for [Config.Updates]: one that was not received yet
// is replaced by the next. Make one with [NewOffers].
type Offers struct {
	mu   sync.Mutex
	last chan Offer
}

// NewOffers makes an Offers that holds none.
func NewOffers() *Offers { return &Offers{last: make(chan Offer, 1)} }

// Put makes o the offer to be received. It never blocks. The offer's slices belong
// to the receiver from then on.
func (o *Offers) Put(offer Offer) {
	o.mu.Lock() // or two could find the place empty
	defer o.mu.Unlock()
	select {
	case <-o.last:
	default:
	}
	o.last <- offer
}

// Updates is where the offers are received.
func (o *Offers) Updates() <-chan Offer { return o.last }
