package natsserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
)

// Operator makes the server know who connects by JWTs, instead of a token.
type Operator struct {
	JWT           string            // of the operator
	SystemAccount string            // id of the account of the server's own messages
	Account       string            // id of the account that stores
	Accounts      map[string]string // JWTs by id, known from the start
}

// accounts is the directory of the JWTs of accounts, below the directory of the streams.
const accounts = "accounts"

// maxAccounts is how many accounts there may be.
const maxAccounts = 100_000

// trust sets what the server trusts.
func (c Config) trust(o *server.Options) error {
	if c.Operator == nil {
		return nil
	}
	claims, err := jwt.DecodeOperatorClaims(c.Operator.JWT)
	if err != nil {
		return fmt.Errorf("the operator of the NATS server: %w", err)
	}
	moved, err := Adopt(c.StoreDir, c.Operator.Account)
	if err != nil {
		return err
	}
	if moved {
		c.Logger.Info("the log was moved to the account of the system", "account", c.Operator.Account)
	}
	dir := filepath.Join(c.StoreDir, accounts)
	for id := range c.Operator.Accounts {
		// The resolver would keep one that was made later, as it is if the clock was ahead then.
		if err := os.Remove(filepath.Join(dir, id+".jwt")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the accounts of the NATS server: %w", err)
		}
	}
	resolver, err := server.NewDirAccResolver(dir, maxAccounts, time.Minute, server.HardDelete)
	if err != nil {
		return fmt.Errorf("the accounts of the NATS server: %w", err)
	}
	for id, token := range c.Operator.Accounts {
		if err := resolver.Store(id, token); err != nil {
			return fmt.Errorf("the accounts of the NATS server: %w", err)
		}
	}
	o.TrustedOperators, o.SystemAccount, o.AccountResolver = []*jwt.OperatorClaims{claims}, c.Operator.SystemAccount, resolver
	return nil
}

// Adopt moves what a server without an operator has stored in a directory to the account that stores now. It
// reports whether there was anything. No server may run on the directory.
func Adopt(storeDir, account string) (moved bool, err error) {
	dir := filepath.Join(storeDir, server.JetStreamStoreDir)
	was, is := filepath.Join(dir, globalAccount), filepath.Join(dir, account)
	if _, err := os.Stat(was); os.IsNotExist(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if _, err := os.Stat(is); err == nil {
		return false, fmt.Errorf("both %s and %s exist: the bus has run with other keys, or without any, after it had rights; "+
			"keep the one with your sessions and move the other away", was, is)
	}
	if err := os.Rename(was, is); err != nil {
		return false, fmt.Errorf("moving the log to the account of the system: %w", err)
	}
	return true, nil
}

// Storing returns the ids of the accounts of an operator that have streams in a directory.
func Storing(storeDir string) (accounts []string, err error) {
	streams, err := filepath.Glob(filepath.Join(storeDir, server.JetStreamStoreDir, "*", "streams", "*"))
	if err != nil {
		return nil, fmt.Errorf("looking for streams in %s: %w", storeDir, err)
	}
	for _, s := range streams {
		id := filepath.Base(filepath.Dir(filepath.Dir(s)))
		if id != globalAccount && !slices.Contains(accounts, id) {
			accounts = append(accounts, id)
		}
	}
	return accounts, nil
}

// globalAccount is the account of a server without an operator.
const globalAccount = "$G"
