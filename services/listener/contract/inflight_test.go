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
	_, early := d.Enter()
	opened := d.Open()
	leave, entered := d.Enter()
	if early || !opened || !entered || d.Open() {
		t.Fatal("want shut, opened, entered, and not opened again")
	}
	leave()
}

func TestShuttingWaitsForThoseWhoAreIn(t *testing.T) {
	var d contract.InFlight
	d.Open()
	leaveOne, _ := d.Enter()
	leaveOther, _ := d.Enter()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Shut(done); !errors.Is(err, contract.ErrNotTaken) || !strings.Contains(err.Error(), "2 inputs") {
		t.Errorf("Shut in haste: %v", err)
	}
	if _, ok := d.Enter(); ok {
		t.Error("Enter succeeded after Shut")
	}
	shut := make(chan error, 1)
	go func() { shut <- d.Shut(t.Context()) }()
	leaveOne()
	leaveOther()
	if err := <-shut; err != nil {
		t.Errorf("Shut: %v", err)
	}
	if err := d.Shut(done); err != nil {
		t.Errorf("Shut again, when all have left: %v", err)
	}
}

func TestInFlightThatWasNeverOpenedShutsAtOnce(t *testing.T) {
	var d contract.InFlight
	if err := d.Shut(t.Context()); err != nil {
		t.Errorf("Shut: %v", err)
	}
	if _, ok := d.Enter(); ok {
		t.Error("Enter succeeded after Shut")
	}
}
