// Package redisconn connects to a Redis server or cluster, or by Sentinel, by URL. It has the conventions
// that all stores in Redis have in common: parameters of the URL, time limits, errors without
// passwords. The tests are those of the packages that use it.
package redisconn

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"skandha.dev/services/internal/store"
)

const defaultTimeout = 3 * time.Second

// Config configures the server and the keys.
type Config struct {
	// URL is redis://user:password@host:port/db, or rediss:// for TLS. Query
	// parameters are those of go-redis (read_timeout=1s, pool_size=5, ...) and
	// prefix=… like Prefix below, and cluster=true for a Redis Cluster, where
	// addr=host:port names further nodes.
	//
	// With master_name=NAME the hosts are those of Redis Sentinel, and the client follows
	// the master of that name. User and password are those of the servers and of the sentinels;
	// username=… and password=… name the servers' if they differ.
	URL string

	// Prefix begins every key. It must not contain braces. It overrides the URL's prefix.
	Prefix string

	// Default is the prefix if neither sets one.
	Default string

	// Timeout bounds each of connecting, sending and receiving, unless the URL sets
	// their limits. A context's deadline applies, too. If a context is cancelled, a
	// pending call may notice it only after this time.
	Timeout time.Duration
}

// Open returns a client that connects when it is first used, so a server that is
// unreachable now is treated like one that fails later. The error is store.ErrInvalid. It
// contains no part of the URL that may contain a password.
func (c Config) Open() (*Conn, error) {
	quiet()
	u, err := url.Parse(c.URL)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the URL
		}
		return nil, fmt.Errorf("%w: redis URL: %w", store.ErrInvalid, err)
	}
	query := u.Query()
	conn := &Conn{Prefix: cmp.Or(c.Prefix, query.Get("prefix"), c.Default)}
	if strings.ContainsAny(conn.Prefix, "{}") {
		return nil, fmt.Errorf("%w: braces in the redis key prefix %q", store.ErrInvalid, conn.Prefix)
	}
	cluster, err := strconv.ParseBool(cmp.Or(query.Get("cluster"), "false"))
	if err != nil {
		return nil, fmt.Errorf("%w: redis URL: cluster=%q", store.ErrInvalid, query.Get("cluster"))
	}
	sentinel := query.Has("master_name")
	if sentinel && (cluster || query.Get("master_name") == "") {
		return nil, fmt.Errorf("%w: redis URL: master_name wants a name, and no cluster=true", store.ErrInvalid)
	}
	query.Del("prefix")
	query.Del("cluster")
	u.RawQuery = query.Encode()
	switch {
	case cluster:
		conn.Client, conn.Where, err = c.clusterClient(u.String())
	case sentinel:
		conn.Client, conn.Where, err = c.sentinelClient(u.String())
	default:
		conn.Client, conn.Where, err = c.singleClient(u.String())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return conn, nil
}

func (c Config) singleClient(url string) (redis.UniversalClient, string, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, "", err
	}
	o.ContextTimeoutEnabled, o.DialerRetries, o.MaintNotificationsConfig = true, 1, noNotifications()
	c.complete(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.MaxRetries, &o.PipelinePoolSize)
	return redis.NewClient(o), o.Addr, nil
}

func (c Config) clusterClient(url string) (redis.UniversalClient, string, error) {
	o, err := redis.ParseClusterURL(url)
	if err != nil {
		return nil, "", err
	}
	o.ContextTimeoutEnabled, o.DialerRetries, o.MaintNotificationsConfig = true, 1, noNotifications()
	c.complete(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.MaxRetries, &o.PipelinePoolSize)
	return redis.NewClusterClient(o), strings.Join(o.Addrs, ", "), nil
}

func (c Config) sentinelClient(url string) (redis.UniversalClient, string, error) {
	o, err := redis.ParseFailoverURL(url)
	if err != nil {
		return nil, "", err
	}
	if o.Username == "" && o.Password == "" {
		o.Username, o.Password = o.SentinelUsername, o.SentinelPassword
	}
	o.ContextTimeoutEnabled, o.DialerRetries = true, 1
	c.complete(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.MaxRetries, &o.PipelinePoolSize)
	return redis.NewFailoverClient(o), o.MasterName + " of " + strings.Join(o.SentinelAddrs, ", "), nil
}

func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// complete sets what the URL leaves open.
func (c Config) complete(dial, read, write *time.Duration, retries, pipelines *int) {
	for _, d := range []*time.Duration{dial, read, write} {
		*d = cmp.Or(*d, c.Timeout, defaultTimeout)
	}
	*retries, *pipelines = cmp.Or(*retries, 1), cmp.Or(*pipelines, -1)
}
