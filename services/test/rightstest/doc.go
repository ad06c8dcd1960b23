// Package rightstest holds the rights on the bus against a real server: every identity on every
// subject of the contract, in both directions, and the acts of somebody who has the credentials of
// one identity and tries to do more.
package rightstest
