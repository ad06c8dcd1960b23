package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"skandha.dev/services/core/model"
)

func main() {
	o := model.Register(flag.CommandLine)
	flag.Parse()
	cfg, err := o.Config()
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	t := time.Now()
	r := model.New(cfg).Explore()
	for _, l := range r.Trace {
		fmt.Println("   ", l)
	}
	fmt.Println(r.Last)
	fmt.Printf("%s %s bug=%s states=%d edges=%d goal=%d overflow=%d %.1fs %s\n", r.Outcome, cfg.Scenario, cfg.Mutation, r.States, r.Edges, r.Goals, r.Overflow, time.Since(t).Seconds(), r.Reason)
}
