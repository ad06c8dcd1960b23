package natstest

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"skandha.dev/services/internal/natsserver"
)

// Cluster is a set of servers, each in its own process, that keep copies of each
// other's streams.
type Cluster struct{ Nodes []*Process }

// StartCluster runs three servers until the test ends.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	dir, routes := t.TempDir(), Routes(t, 3)
	c := &Cluster{}
	for i, own := range routes {
		p := &Process{
			t: t, dir: filepath.Join(dir, "n"+strconv.Itoa(i)), port: FreePort(t), sync: natsserver.Relaxed,
			routes: append([]string{own}, routes...),
		}
		t.Cleanup(p.Kill)
		p.Restart()
		c.Nodes = append(c.Nodes, p)
	}
	return c
}

// URL is where clients connect: any of the servers.
func (c *Cluster) URL() string {
	urls := make([]string, 0, len(c.Nodes))
	for _, n := range c.Nodes {
		urls = append(urls, n.URL())
	}
	return strings.Join(urls, ",")
}

// Routes returns addresses for n servers of a cluster.
func Routes(t testing.TB, n int) []string {
	t.Helper()
	all := make([]string, 0, n)
	for range n {
		all = append(all, "127.0.0.1:"+strconv.Itoa(FreePort(t)))
	}
	return all
}

// member is the configuration of one server of a cluster; its own route comes first.
func member(c natsserver.Config, routes []string) natsserver.Config {
	c.Name = "n" + routes[0][strings.LastIndexByte(routes[0], ':')+1:]
	c.Cluster = &natsserver.Cluster{Addr: routes[0], Routes: routes[1:]}
	return c
}
