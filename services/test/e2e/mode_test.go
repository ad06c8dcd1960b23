package e2e_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// mode is how thorough a run is.
type mode int

const (
	short mode = iota
	usual
	long
)

func runMode() mode {
	switch os.Getenv("SKANDHA_E2E") {
	case "long":
		return long
	case "usual":
		return usual
	case "short":
		return short
	}
	switch {
	case os.Getenv("SKANDHA_REQUIRE") == "all":
		return long
	case testing.Short():
		return short
	}
	return usual
}

// seeded makes the choices of a test: SKANDHA_SEED repeats those of a run.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SKANDHA_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SKANDHA_SEED is %q, want a number: %v", text, err)
		}
		seed = n
	}
	t.Logf("SKANDHA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 9))
}
