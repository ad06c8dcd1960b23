package contract_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"skandha.dev/services/listener/contract"
)

func TestInFlightIsShutUntilItIsOpenedAndOpensOnce(t *testing.T) {
	var d contract.InFlight
	if d.Enter() || !d.Open() || !d.Enter() || d.Open() {
		t.Error("want shut, opened, entered, and not opened again")
	}
}

func TestShuttingWaitsForThoseWhoAreIn(t *testing.T) {
	var d contract.InFlight
	d.Open()
	d.Enter()
	d.Enter()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Shut(done); !errors.Is(err, contract.ErrNotTaken) || !strings.Contains(err.Error(), "2 inputs") {
		t.Errorf("Shut in haste: %v", err)
	}
	if d.Enter() {
		t.Error("Enter succeeded after Shut")
	}
	shut := make(chan error, 1)
	go func() { shut <- d.Shut(t.Context()) }()
	d.Leave()
	d.Leave()
	if err := <-shut; err != nil {
		t.Errorf("Shut: %v", err)
	}
	if err := d.Shut(done); err != nil {
		t.Errorf("Shut again, when all have left: %v", err)
	}
}

func TestInFlightThatWasNeverOpenedShutsAtOnce(t *testing.T) {
	var d contract.InFlight
	if err := d.Shut(t.Context()); err != nil || d.Enter() {
		t.Errorf("Shut: %v", err)
	}
}
