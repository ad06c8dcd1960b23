// Command skandha-bench measures this machine against the budgets, each beside the raw
// operation. `skandha bench` runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"skandha.dev/pkg/telemetry"
	"skandha.dev/services/bench"
	"skandha.dev/services/internal/process"
)

func main() {
	var c bench.Command
	parser := kong.Must(&c, kong.Name("skandha-bench"),
		kong.Description("Measures this machine against the budgets, each beside the raw operation."))
	if _, err := parser.Parse(os.Args[1:]); err != nil {
		os.Exit(process.Usage("skandha-bench", err))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := c.Run(ctx)
	stop()
	if errors.Is(err, context.Canceled) {
		os.Exit(130)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "skandha-bench: "+telemetry.Redact(err.Error()))
		os.Exit(1)
	}
}
