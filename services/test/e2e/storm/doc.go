// Package storm tests whole deployments against continuous faults: services that are
// killed every 50 to 500 ms, more work than there are slots, a core that hangs, a full disk.
// Clients use only HTTP and repeat inputs that were not acknowledged; a plugin records
// each effect outside of the system. The verdict is that of package e2etest: the log,
// the effects and what clients saw.
//
// Counts are asserted and times are printed, since machines differ. `make storm` runs
// the long form; SKANDHA_STORM sets how many turns the storm lasts (3000) or how long
// (10m). Without it the runs are short.
package storm
